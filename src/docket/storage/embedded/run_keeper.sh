# Leaves a keeper running, and starts it again if it is killed. One that cannot run at all is given up: the next client
# to come or go tries anew.
#
# $1     the server's process group, which is known to be right now; later keepers read it for themselves
# $2...  the keeper's command line; it ends with 0 when its work is done
umask 077
group=$1
shift
{
    tries=0
    until "$@" $group; do
        group=
        tries=$((tries + 1))
        [ "$tries" -lt 5 ] || exit 1
        sleep 1
    done
} </dev/null &
