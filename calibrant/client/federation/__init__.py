"""Federation: a site's service shares the totals of its days with a centre, as a contract allows. No row leaves the site.

`contract` says what is shared. `shared_panes` removes rows and names from a total. `forwarder` sends, with a ledger of key and terms.
"""
