"""The language server as an editor starts it: a process, and messages with their lengths on its pipes."""

import json
import subprocess

from conftest import PATIENCE_S, SLUICE


class Editor:
    def __init__(self, *args: str) -> None:
        command = [str(SLUICE), "lsp", *args]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0

    def send(self, method: str, params, **more) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def message(self) -> dict:
        length = 0
        while (line := self.process.stdout.readline().strip()):
            name, value = line.split(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(self.process.stdout.read(length))

    def ask(self, method: str, params):
        self.number += 1
        self.send(method, params, id=self.number)
        while (message := self.message()).get("id") != self.number:
            pass
        return message["result"]


def test_an_editor_starts_the_server_and_ends_it(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "types.p4").write_text("typedef bit<WIDTH> port_t;\n")
    program = tmp_path / "program.p4"
    editor = Editor("-I", "include", "-D", "WIDTH=9", "--stdio")
    answer = editor.ask("initialize", {"rootUri": tmp_path.as_uri(), "capabilities": {}})
    assert answer["serverInfo"]["name"] == "sluice"
    editor.send("initialized", {})
    text = "#include <types.p4>\nconst port_t port = 512;\nconst prt_t other = 1;\n"
    document = {"uri": program.as_uri(), "languageId": "p4", "version": 1, "text": text}
    editor.send("textDocument/didOpen", {"textDocument": document})
    told = editor.message()
    assert told["method"] == "textDocument/publishDiagnostics"
    lines = {d["range"]["start"]["line"]: d for d in told["params"]["diagnostics"]}
    assert lines[2]["code"].startswith("E") and "prt_t" in lines[2]["message"]
    place = {"textDocument": {"uri": program.as_uri()}, "position": {"line": 1, "character": 8}}
    assert "typedef bit<WIDTH> port_t" in editor.ask("textDocument/hover", place)["contents"]["value"]
    assert editor.ask("shutdown", None) is None
    editor.send("exit", None)
    assert editor.process.wait(timeout=PATIENCE_S) == 0
