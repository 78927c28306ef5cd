"""Storms on a cluster: masters with replicas whose nodes die, hang and lose the network, and slots that move."""
