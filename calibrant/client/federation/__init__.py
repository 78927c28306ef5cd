"""Federation: a site's service shares the totals of its panes with a centre, as a contract allows. No row leaves the site.

`contract` says what is shared. `shared_panes` removes rows and names from a total. `change_size` counts the units by which two totals
differ, at least. `ledger` stores what was sent. `exported_panes` reads the site, and `forwarder` decides and sends.
"""
