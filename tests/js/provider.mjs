// An identity provider: arguments are the file of the library, and the audience of its tokens. Prints its issuer.
import { createServer } from "node:http";

const [, , library, audience] = process.argv;
const { Provider } = await import(library);
const server = createServer().listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const resource = { scope: "data", audience, accessTokenTTL: 600, accessTokenFormat: "jwt" };
const provider = new Provider(issuer, {
  clients: ["imaging", "nobody"].map((name) => ({
    client_id: name,
    client_secret: "secret-of-the-test",
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
  })),
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: { enabled: true, defaultResource: () => audience, getResourceServerInfo: () => resource },
  },
  extraTokenClaims: (_, token) => ({ groups: [token.clientId] }),
});
server.on("request", provider.callback());
console.log(issuer);
