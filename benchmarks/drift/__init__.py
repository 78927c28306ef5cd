"""How soon the verdict finds changes of users' scenarios, and how often it is wrong."""
