"""Running: one delivery from its start to the settlement that the server has written."""
