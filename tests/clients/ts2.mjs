// The TypeScript client, version 2, in both protocol eras: lists and calls on every target; one JSON array on standard output.
// usage: CLIENTS=folder node ts2.mjs '[{"url": ...} | {"command": ..., "args": [...], "cwd": ...}, ...]'
import { createRequire } from "node:module";
const require = createRequire(`${process.env.CLIENTS}/`);
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const seen = [];
for (const target of JSON.parse(process.argv[2])) {
  for (const mode of ["legacy", "auto"]) {
    const client = new Client({ name: "ts2", version: "1" }, { versionNegotiation: { mode } });
    await client.connect(target.url ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target));
    const { tools } = await client.listTools();
    const found = await client.callTool({ name: "search", arguments: { format: "json", query: "authentication" } });
    const shout = await client.callTool({ name: "shout", arguments: { text: "hey" } });
    const bad = await client.callTool({ name: "search", arguments: { format: "json", query: "x", limit: 0 } });
    const { resources } = await client.listResources();
    const { contents } = await client.readResource({ uri: resources[0].uri });
    const { prompts } = await client.listPrompts();
    let unknown = null;
    try {
      await client.callTool({ name: "no_such_tool", arguments: {} });
    } catch (error) {
      unknown = error.code;
    }
    seen.push({
      target: target.url ?? "stdio",
      mode,
      version: client.getNegotiatedProtocolVersion(),
      tools: tools.map((tool) => tool.name),
      hits: found.structuredContent.results.length,
      shout: shout.structuredContent,
      bad: bad.isError,
      text: contents[0].text,
      prompts: prompts.map((prompt) => prompt.name),
      unknown,
    });
    await client.close();
  }
}
console.log(JSON.stringify(seen));
process.exit(0);
