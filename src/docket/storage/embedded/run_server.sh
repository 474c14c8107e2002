# Starts a server in the background. The server inherits the lock on its folder and holds it until it
# ends.
#
# $@  the server's command line
#
# This shell leads a new process group. Its number is written first, so that every server can be
# stopped.
umask 077
echo $$ >server.group || exit 1
"$@" </dev/null &
