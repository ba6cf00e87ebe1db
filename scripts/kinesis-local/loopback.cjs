// kinesis-local listens on every interface of the machine. This keeps it on loopback: node --require loopback.cjs.
const { Server } = require("net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (...args) {
  if (args[0] !== null && typeof args[0] === "object") {
    args[0] = { ...args[0], host: "127.0.0.1" };
  } else if (typeof args[0] === "number") {
    if (typeof args[1] === "string") args[1] = "127.0.0.1";
    else args.splice(1, 0, "127.0.0.1");
  }
  return listen.apply(this, args);
};
