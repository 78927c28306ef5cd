"""Files of predictions and labels: .npy, .npz, .csv, .tsv, .parquet, .arrow, .json and .jsonl."""
