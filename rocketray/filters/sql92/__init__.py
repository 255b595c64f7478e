"""RocketMQ's SQL92 dialect: lexer, parser, evaluator."""
