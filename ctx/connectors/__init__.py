"""Connectors read documents from folders, git repositories, websites and S3 buckets."""
