"""Clones a file on a share of Samba by FSCTL_DUPLICATE_EXTENTS_TO_FILE.

shares_clone.py CONFIGURATION SERVER SHARE USER%PASSWORD SOURCE TARGET: runs where python3-samba 4.22 or later is, such as in a root of Debian
13. The server shares the extents; no byte of the file passes over the wire.
"""

import struct
import sys

from samba import credentials
from samba.samba3 import libsmb_samba_internal as libsmb
from samba.samba3 import param

REQUEST_RESUME_KEY = 0x00140078
DUPLICATE_EXTENTS = 0x00098344
READ, WRITE = 0x00120089, 0x0012019F
SHARE_ALL, OPEN, OPEN_OR_CREATE = 7, 1, 3
# Bytes of one call; Windows stays below 4 GiB.
CALL_MAX = 2 << 30


def main():
    conf, server, share, account, source, target = sys.argv[1:]
    settings = param.get_context()
    settings.load(conf)
    user, password = account.split("%", 1)
    who = credentials.Credentials()
    who.guess(settings)
    who.set_username(user)
    who.set_password(password)
    who.set_smb_encryption(credentials.SMB_ENCRYPTION_REQUIRED)
    connection = libsmb.Conn(server, share, settings, creds=who)
    read = connection.create(source, DesiredAccess=READ, ShareAccess=SHARE_ALL, CreateDisposition=OPEN)
    size = connection.list("", mask=source)[0]["size"]
    # The key of Samba begins with the two numbers of the open file, which the call names its source by.
    handle = bytes(connection.fsctl(read, REQUEST_RESUME_KEY, b"", 64))[:16]
    write = connection.create(target, DesiredAccess=WRITE, ShareAccess=SHARE_ALL, CreateDisposition=OPEN_OR_CREATE)
    # The target has to reach as far as what is shared with it.
    connection.write(write, b"\0", size - 1)
    for at in range(0, size, CALL_MAX):
        request = handle + struct.pack("<QQQ", at, at, min(CALL_MAX, size - at))
        connection.fsctl(write, DUPLICATE_EXTENTS, request, 0)
    connection.close(write)
    connection.close(read)


main()
