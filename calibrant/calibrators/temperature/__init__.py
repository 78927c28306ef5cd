"""The temperature that fits the labels best, from kept profiles and from rows."""
