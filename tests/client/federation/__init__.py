"""Federation: the centre has the sums of the sites, never their rows, and no difference of few units; whatever is killed."""
