"""Join of predictions and labels by id, in columns: facts and stored records in, outcomes and new records out."""
