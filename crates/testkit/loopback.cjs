// Makes third-party servers listen on loopback instead of all interfaces, so that tests are not reachable from outside.
const { Server } = require("node:net");
const listen = Server.prototype._listen2;
Server.prototype._listen2 = function (address, ...rest) {
  return listen.call(this, address ?? "127.0.0.1", ...rest);
};
