# Starts a keeper in the background, and starts it again if it is killed. After five failures the
# script ends: the next client that starts or stops tries again.
#
# $@  the keeper's command line; its exit code is 0 when its work is done
umask 077
{
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 5 ] || exit 1
        sleep 1
    done
} </dev/null &
