"""From stream entries to panes, exactly once, and labels joined by id."""
