"""An app of its own: events written with the change, by the transaction that makes it.

``written`` writes the rows, ``covered`` removes them once a pass has covered them, ``replay``
brings to Redis what never got there. Who doesn't list the app has no table, and no model is loaded.
"""
