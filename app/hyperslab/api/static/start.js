// Starts the page of routes. Paths of nodes have slashes, which Swagger UI would encode.
"use strict";

const element = document.getElementById("docs");

window.ui = SwaggerUIBundle({
  domNode: element,
  url: element.dataset.url,
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis],
  validatorUrl: null,
  deepLinking: true,
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  requestInterceptor: (request) => {
    const [path, ...query] = request.url.split("?");
    request.url = [path.replace(/%2F/gi, "/"), ...query].join("?");
    return request;
  },
});
