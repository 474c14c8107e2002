# Starts a keeper in the background, and starts it again if it is killed. After five failures the
# script ends: the next client that starts or stops tries again.
#
# $1     the server's process group, which is right at this moment; later keepers read it themselves
# $2...  the keeper's command line; its exit code is 0 when its work is done
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
