// The theme gives its search no name for screen readers.
document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");

// Wide code and tables scroll, so the keyboard must reach them. The theme adds the frames of tables later.
function reach() {
  for (const each of document.querySelectorAll("pre > code:not([tabindex]), .md-typeset__scrollwrap:not([tabindex])")) each.tabIndex = 0;
}
reach();
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
