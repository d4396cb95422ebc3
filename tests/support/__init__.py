"""What tests share: servers, builders of tables and files, and fakes."""
