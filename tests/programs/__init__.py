"""Random programs of transactions: ours must deliver what plain ``on_commit`` delivers."""
