// Servers of other makers listen on every interface. Nothing of a test should be reachable from elsewhere.
const { Server } = require("node:net");
const listen = Server.prototype._listen2;
Server.prototype._listen2 = function (address, ...rest) {
  return listen.call(this, address ?? "127.0.0.1", ...rest);
};
