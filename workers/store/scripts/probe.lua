#!lua
-- Ask whether the store takes batches now.
--
-- KEYS  1 any key of the namespace
-- ARGV  none
-- Reply 1. The server runs a script without flags only if it would accept a write that needs memory: a read-only replica,
--       a server whose disk fails and one whose memory is full reject it, each with its reason.
--
-- One step, as it does nothing. It writes nothing, so that asking often does not fill the append-only file.

return 1
