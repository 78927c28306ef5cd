"""The interactive documentation: Swagger UI, served from the installed package `fastapi-swagger`.

Only the files of that package are used; nothing is fetched from elsewhere. The script that starts it is
a file of its own, so that the page needs no inline script. Colours with too little contrast are replaced, and deep links are off:
they are links inside of buttons, which a keyboard and a screen reader cannot tell apart. Opened operations have lists and
fields without names, and examples that scroll but cannot be reached with a keyboard: the script adds both. It also follows the
colour scheme of the system: Swagger UI has dark colours, and no setting for them.
"""

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Calibrant API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="docs/favicon-32x32.png">
<style>
.swagger-ui .info .title small.version-stamp { background: #4b6a02 }
.swagger-ui .info .title small { background: #5a6470 }
.swagger-ui .opblock.opblock-get .opblock-summary-method { background: #1767b3 }
.swagger-ui .opblock.opblock-post .opblock-summary-method { background: #17693f }
.swagger-ui .opblock.opblock-put .opblock-summary-method { background: #8f5200 }
.swagger-ui .opblock.opblock-patch .opblock-summary-method { background: #0b6b5e }
.swagger-ui .opblock.opblock-delete .opblock-summary-method { background: #b3261e }
.swagger-ui .table-container, .swagger-ui .responses-inner { overflow-x: auto }
.swagger-ui .btn.execute { background: #1767b3; border-color: #1767b3 }
.swagger-ui .microlight span[style*="211, 99, 99"] { color: #ff9d9d !important }
@media (prefers-color-scheme: light) {
  .swagger-ui .info a, .swagger-ui a.link, .swagger-ui .info .link .url { color: #0b5cad }
  .swagger-ui .btn.authorize, .swagger-ui .btn.authorize span { color: #17693f; border-color: #17693f }
  .swagger-ui .json-schema-2020-12-expand-deep-button { color: #3b4151 }
  .swagger-ui .json-schema-2020-12__attribute--primary { color: #0b6b5e }
  .swagger-ui .parameter__in, .swagger-ui .parameter__deprecated { color: #4f565e }
  .swagger-ui .markdown code, .swagger-ui .renderedMarkdown code { color: #6a0dad }
  .swagger-ui .btn.cancel { color: #b3261e; border-color: #b3261e }
}
html.dark-mode .swagger-ui .header-col, html.dark-mode .swagger-ui .examples-select__section-label { color: #e4e6e6 }
html.dark-mode .swagger-ui .opblock .opblock-section-header { background: #22282c !important }
html.dark-mode .swagger-ui .btn.cancel { color: #ff9d9d !important; border-color: #ff9d9d !important }
</style>
</head>
<body>
<div id="api"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""

START = """const dark = matchMedia("(prefers-color-scheme: dark)");
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
"""
