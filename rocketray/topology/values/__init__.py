"""Values of an app: topics, groups, fields, codecs and failure rules."""
