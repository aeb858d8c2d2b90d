"""Provisional search process."""
from __future__ import annotations
import asyncio, fcntl, json, os, secrets, signal, socket, struct, subprocess, sys, time
from pathlib import Path
from typing import Any
import bson, pymongo
from bson.raw_bson import RawBSONDocument
from workbook.embedded import wire
from workbook.embedded.search import Registry, SearchError

WRITES = {"insert", "update", "delete", "findAndModify", "findandmodify"}


class Proxy:
    def __init__(self, up_port: int, registry: Registry, client: Any, port: int) -> None:
        self.up_port, self.registry, self.client, self.port = up_port, registry, client, port
        self.connections = 0; self.last = time.monotonic()

    async def serve(self, reader: Any, writer: Any) -> None:
        self.connections += 1
        try:
            ur, uw = await asyncio.open_connection("127.0.0.1", self.up_port, limit=1 << 20)
        except OSError:
            writer.close(); self.connections -= 1; return
        c = Link(self, reader, writer, ur, uw)
        tasks = [asyncio.create_task(c.outward()), asyncio.create_task(c.homeward())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for t in tasks: t.cancel()
            for w in (writer, uw):
                try: w.close()
                except Exception: pass
            self.connections -= 1; self.last = time.monotonic()


class Link:
    def __init__(self, proxy: Proxy, r: Any, w: Any, ur: Any, uw: Any) -> None:
        self.p, self.r, self.w, self.ur, self.uw = proxy, r, w, ur, uw
        self.hellos: set[int] = set(); self.pending: dict[int, Any] = {}; self.after: dict[int, Any] = {}
        self.next = -2

    async def outward(self) -> None:
        while (frame := await wire.read_frame(self.r)) is not None:
            name = wire.command_name(frame)
            try:
                if await self.intercept(name, frame): continue
            except SearchError as e:
                await self.reply(frame, {"ok": 0.0, "errmsg": str(e), "code": e.code, "codeName": e.name}); continue
            self.uw.write(frame.data); await self.uw.drain()

    async def reply(self, frame: Any, doc: Any) -> None:
        self.w.write(wire.op_msg(doc, request_id=0, response_to=frame.request_id)); await self.w.drain()

    async def ask(self, doc: dict[str, Any]) -> Any:
        self.next -= 1
        fut = asyncio.get_running_loop().create_future(); self.pending[self.next] = fut
        self.uw.write(wire.op_msg(doc, request_id=self.next)); await self.uw.drain()
        return await fut

    async def intercept(self, name: str, frame: Any) -> bool:
        reg = self.p.registry
        if name in ("hello", "isMaster", "ismaster"):
            self.hellos.add(frame.request_id); return False
        if name in WRITES:
            self.note_write(name, frame); return False
        if name in ("drop", "dropDatabase", "renameCollection", "bulkWrite"):
            cmd, _ = wire.parse(frame); db = cmd["$db"]
            if name == "drop": reg.forget(f"{db}.{cmd['drop']}")
            elif name == "dropDatabase": reg.forget(db)
            else:
                for ns, _n in list(reg.indexes): reg.touch(ns, None)
            return False
        if name in ("createSearchIndexes", "updateSearchIndex", "dropSearchIndex"):
            cmd, _ = wire.parse(frame); cmd = bson.decode(cmd.raw); ns = f"{cmd['$db']}.{cmd[name]}"
            if not await self.allowed(frame, cmd["$db"]): return True
            if name == "createSearchIndexes":
                made = [reg.create(ns, s) for s in cmd["indexes"]]
                await self.reply(frame, {"indexesCreated": made, "ok": 1.0})
            elif name == "updateSearchIndex":
                reg.update(ns, cmd["name"], cmd["definition"]); await self.reply(frame, {"ok": 1.0})
            else:
                reg.drop(ns, cmd["name"]); await self.reply(frame, {"ok": 1.0})
            return True
        if name == "aggregate":
            raw, _ = wire.parse(frame); pipeline = raw.get("pipeline") or []
            first = next(iter(pipeline[0]), "") if pipeline else ""
            if first not in ("$listSearchIndexes", "$vectorSearch"): return False
            cmd = bson.decode(raw.raw); ns = f"{cmd['$db']}.{cmd['aggregate']}"
            if not await self.allowed(frame, cmd["$db"]): return True
            if first == "$listSearchIndexes":
                docs = reg.list(ns, cmd["pipeline"][0][first])
                await self.reply(frame, {"cursor": {"id": bson.Int64(0), "ns": ns, "firstBatch": docs}, "ok": 1.0}); return True
            cmd["pipeline"] = await self.rewrite(cmd, ns)
            self.uw.write(wire.op_msg(cmd, request_id=frame.request_id)); await self.uw.drain()
            return True
        return False

    async def rewrite(self, cmd: dict[str, Any], ns: str) -> list[Any]:
        stage = cmd["pipeline"][0]["$vectorSearch"]; rest = cmd["pipeline"][1:]
        limit, exact, num = stage.get("limit"), stage.get("exact", False), stage.get("numCandidates")
        if not isinstance(limit, int) or limit < 1: raise SearchError('"limit" must be a positive integer')
        if exact and num is not None: raise SearchError('"numCandidates" must be omitted for exact search')
        if not exact and num is None: raise SearchError('"numCandidates" is required for approximate search')
        if num is not None and num > 10000: raise SearchError('"numCandidates" must be within 1 and 10000')
        if num is not None and limit > num: raise SearchError('"numCandidates" must be greater than or equal to limit')
        index = self.p.registry.get(ns, stage.get("index", "default"))
        found: list[tuple[Any, float]] = []
        if index is not None:
            if stage.get("path") != index.vector["path"]: raise SearchError(f"Path '{stage.get('path')}' is not indexed as vector")
            dims = index.vector["numDimensions"]
            if len(stage["queryVector"]) != dims:
                raise SearchError(f"PlanExecutor error during aggregation :: caused by :: vector field is indexed with {dims} dimensions but queried with {len(stage['queryVector'])}")
            db, coll = ns.split(".", 1)
            await asyncio.to_thread(index.refresh, self.p.client[db][coll])
            found = await asyncio.to_thread(index.search, stage["queryVector"], limit, stage.get("filter"))
        ids, scores = [f[0] for f in found], [f[1] for f in found]
        head = [{"$match": {"_id": {"$in": ids}}},
                {"$set": {"__score": {"$arrayElemAt": [scores or [0.0], {"$indexOfArray": [{"$literal": ids}, "$_id"]}]}}},
                {"$sort": {"__score": -1}}]
        tail = rewrite_meta(rest)
        return [*head, *tail, {"$unset": "__score"}]

    async def allowed(self, frame: Any, db: str) -> bool:
        answer = await self.ask({"listCollections": 1, "nameOnly": True, "filter": {"name": ""}, "$db": db})
        if answer.get("ok"): return True
        await self.reply(frame, answer); return False

    def note_write(self, name: str, frame: Any) -> None:
        reg = self.p.registry
        if not reg.indexes: return
        cmd, seqs = wire.parse(frame); ns = f"{cmd['$db']}.{cmd[name]}"
        if not any(n == ns for n, _ in reg.indexes): return
        if name == "insert":
            docs = seqs.get("documents") or list(cmd.get("documents", [])); ids: Any = [d["_id"] for d in docs]
        else:
            key = {"update": "updates", "delete": "deletes"}.get(name)
            ops = (seqs.get(key) or list(cmd.get(key, []))) if key else [{"q": cmd.get("query", {})}]
            ids = []
            for op in ops:
                q = bson.decode(op["q"].raw) if isinstance(op["q"], RawBSONDocument) else dict(op["q"])
                i = q.get("_id", None)
                if "_id" in q and not isinstance(i, dict): ids.append(i)
                elif isinstance(i, dict) and "$in" in i: ids.extend(i["$in"])
                elif isinstance(i, dict) and "$eq" in i: ids.append(i["$eq"])
                else: ids = None; break
        reg.touch(ns, ids); self.after[frame.request_id] = (ns, ids)

    async def homeward(self) -> None:
        while (frame := await wire.read_frame(self.ur)) is not None:
            if frame.response_to in self.pending:
                doc, _ = wire.parse(frame); self.pending.pop(frame.response_to).set_result(bson.decode(doc.raw)); continue
            if frame.response_to in self.after:
                self.p.registry.touch(*self.after.pop(frame.response_to))
            data = frame.data
            if frame.response_to in self.hellos:
                data = self.hello(frame)
            self.w.write(data); await self.w.drain()

    def hello(self, frame: Any) -> bytes:
        offset = 36 if frame.opcode == wire.OP_REPLY else 21
        if frame.opcode == wire.OP_MSG and struct.unpack_from("<I", frame.data, 16)[0] & wire.MORE_TO_COME:
            self.hellos.add(frame.request_id)
        doc = bson.decode(frame.data[offset:]) ; me = f"127.0.0.1:{self.p.port}"
        for k in ("me", "primary"):
            if k in doc: doc[k] = me
        if "hosts" in doc: doc["hosts"] = [me]
        doc.pop("compression", None)
        payload = bson.encode(doc)
        head = frame.data[16:offset]
        return wire.HEADER.pack(16 + len(head) + len(payload), frame.request_id, frame.response_to, frame.opcode) + head + payload


def rewrite_meta(value: Any) -> Any:
    if isinstance(value, dict):
        if value == {"$meta": "vectorSearchScore"}: return "$__score"
        return {k: rewrite_meta(v) for k, v in value.items()}
    if isinstance(value, list): return [rewrite_meta(v) for v in value]
    return value


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0)); return s.getsockname()[1]


def secantus(home: Path, port: int, auth: bool) -> subprocess.Popen[bytes]:
    exe = Path(sys.executable).with_name("secantusd-py")
    log = open(home / "secantus.log", "ab")
    p = subprocess.Popen([str(exe), "--host", "127.0.0.1", "--port", str(port), "--storage-path", str(home / "data"), "--cache-size", "256M", *(["--auth"] if auth else [])], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    for _ in range(200):
        try: socket.create_connection(("127.0.0.1", port), 0.2).close(); return p
        except OSError: time.sleep(0.05)
    raise SystemExit("secantus did not start")


async def main(home: Path, port: int, idle: float) -> None:
    home.mkdir(parents=True, exist_ok=True)
    lock = open(home / "server.lock", "w")
    try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: raise SystemExit(3)
    cred = home / "credentials.json"; up = free_port()
    if not cred.exists():
        c = {"user": "workbook", "password": secrets.token_urlsafe(16)}
        child = secantus(home, up, False)
        pymongo.MongoClient(f"mongodb://127.0.0.1:{up}/?directConnection=true").admin.command("createUser", c["user"], pwd=c["password"], roles=["root"])
        child.terminate(); child.wait(10)
        fd = os.open(cred, os.O_CREAT | os.O_WRONLY, 0o600); os.write(fd, json.dumps(c).encode()); os.close(fd)
    c = json.loads(cred.read_text())
    child = secantus(home, up, True)
    client = pymongo.MongoClient(f"mongodb://{c['user']}:{c['password']}@127.0.0.1:{up}/?directConnection=true&authSource=admin")
    port = port or free_port()
    proxy = Proxy(up, Registry(home / "search_indexes.json"), client, port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", port, limit=1 << 20)
    state = {"port": port, "pid": os.getpid(), "child": child.pid}
    (home / "server.tmp").write_text(json.dumps(state)); (home / "server.tmp").replace(home / "server.json")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        if proxy.connections == 0 and time.monotonic() - proxy.last > idle: break
        if child.poll() is not None: child = secantus(home, up, True)
        try: await asyncio.wait_for(stop.wait(), 0.5)
        except TimeoutError: pass
    (home / "server.json").unlink(missing_ok=True)
    server.close(); child.terminate(); child.wait(20)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
