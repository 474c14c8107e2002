"""What a user of the public API gets, one promise per test, on the embedded server."""
