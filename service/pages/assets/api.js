// Starts Swagger UI, and follows the colour scheme of the system: it has dark colours, and no setting for them. Opened operations have lists
// and fields without names, and examples that scroll but cannot be reached with a keyboard: both are added here. Deep links are off: they are
// links inside of buttons, which a keyboard and a screen reader cannot tell apart.
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

const FIELDS = "select, input:not([type=hidden]), textarea";
const SCROLLED = "pre, .highlight-code, .table-container, .parameters-container, .responses-inner";

function nameOf(field) {
  const row = field.closest("tr[data-param-name]");
  if (row) return row.dataset.paramName;
  if (field.matches(".filter input")) return "Filter by tag";
  if (field.closest(".examples-select, .examples-select-element")) return "Example";
  if (field.closest(".servers")) return "Server";
  if (field.closest(".opblock-section-request-body")) return field.matches("select") ? "Media type of the request" : "Request body";
  if (field.closest(".responses-wrapper")) return "Media type of the response";
  return field.placeholder || "Value";
}

function hasLabel(field) {
  return [...(field.labels ?? [])].some((label) => label.textContent.replace(field.textContent, "").trim());
}

function name(place) {
  for (const field of place.querySelectorAll(FIELDS)) {
    if (!hasLabel(field) && !field.hasAttribute("aria-label")) field.setAttribute("aria-label", nameOf(field));
  }
  for (const part of place.querySelectorAll(SCROLLED)) {
    if (part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight) part.tabIndex = 0;
  }
}

const api = document.getElementById("api");
let isPlanned = false;
new MutationObserver(() => {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => {
    isPlanned = false;
    name(api);
  });
}).observe(api, { childList: true, subtree: true });

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: false,
  displayRequestDuration: true,
  filter: true,
  persistAuthorization: false,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
