"""The outbox: rows with the change, until a pass has covered them."""
