"""Loads routes into a running switch with the unmodified P4Runtime client p4runtime-shell.

    demo_routes.py ADDRESS FILE

Each line of FILE is `TABLE KEY=VALUE... ACTION PARAM=VALUE...`; names are those of the program's P4Info.
"""

import sys

import p4runtime_sh.shell as sh


def load(line: str) -> None:
    words = line.split()
    table, rest = words[0], words[1:]
    at = next(i for i, word in enumerate(rest) if "=" not in word)
    entry = sh.TableEntry(table)(action=rest[at])
    for pair in rest[:at]:
        key, value = pair.split("=", 1)
        entry.match[key] = value
    for pair in rest[at + 1 :]:
        param, value = pair.split("=", 1)
        entry.action[param] = value
    entry.insert()


def main() -> None:
    address, path = sys.argv[1:]
    # Without a config of our own: the switch runs its program already and tells its P4Info.
    sh.setup(device_id=1, grpc_addr=address, election_id=(0, 1), verbose=False)
    count = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.split("#")[0].strip()
            if line:
                load(line)
                print(f"  {line}")
                count += 1
    print(f"  {count} entries written")
    sh.teardown()


if __name__ == "__main__":
    main()
