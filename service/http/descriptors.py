"""How many connections a process may have: fewer than its descriptors."""

import resource

MAX_CONNECTIONS = 8192
SERVED_SHARE = 0.5  # of the connections: requests of one tenant that may be served at one time
MAX_DESCRIPTORS = 65_536
# Descriptors for the store, files, threads and connections that are accepted before others have ended.
RESERVED_DESCRIPTORS, BACKLOG = 256, 128


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors up to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limit(n_processes: int = 1) -> int:
    """Return how many connections this process may have: fewer than its descriptors, with a reserve.

    Parameters
    ----------
    n_processes : processes on the same port; together they have at most `MAX_CONNECTIONS`
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(1, MAX_CONNECTIONS // n_processes)
    if soft == resource.RLIM_INFINITY:
        return most
    return max(1, min(most, soft - min(RESERVED_DESCRIPTORS, soft // 2)))


def backlog() -> int:
    """Return how many connections are accepted at once, so that they fit in the reserve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return BACKLOG if soft == resource.RLIM_INFINITY else max(8, min(BACKLOG, soft // 4))
