"""What a subscription means: tags, SQL92, Bloom bits and class filters; pure, and blind to the store."""
