"""Puts a file into a served space: the client of rescue.sh.

rescue_client.py put URI FILE     writes the file into the space from its beginning on, and flushes
"""

import sys

from reader_client import FLUSH, WRITE, Client, expect

PIECE = 256 << 10


def put(uri, path):
    client = Client(uri)
    with open(path, "rb") as file:
        data = file.read()
    expect("room for the file", client.size >= len(data), True)
    for at in range(0, len(data), PIECE):
        piece = data[at : at + PIECE]
        # What is zeros need not be said of a space that is new.
        if any(piece):
            client.begin(WRITE, at, len(piece), piece)
            client.end_one()
    client.begin(FLUSH, 0, 0)
    client.end_one()
    client.close()


def main():
    words = sys.argv[1:]
    expect("the command line", (len(words), words[:1]), (3, ["put"]))
    put(words[1], words[2])


if __name__ == "__main__":
    main()
