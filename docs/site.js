// Code and tables that are wider than their box can be scrolled by keyboard too, whatever the theme does about it.
const wide = "pre > code, .md-typeset__scrollwrap";
const reach = () => document.querySelectorAll(`:is(${wide}):not([tabindex])`).forEach((box) => (box.tabIndex = 0));
new MutationObserver(reach).observe(document.body, { subtree: true, childList: true, attributeFilter: ["tabindex"] });
reach();
