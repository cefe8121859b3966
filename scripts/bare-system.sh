# Sourced by what tries packages in a bare system, after common.sh: makes the system in $system, and runs the service in
# Sourced by the scripts that test packages in a bare system, after common.sh: makes the system in $system, and runs the
# service in it. With systemd-nspawn the system is booted, so that systemd runs the unit; otherwise this script starts
# the command of the unit, as its user, and waits for the notification that systemd would wait for.
#
# Needs $folder, the folder of the packages, and $boots, which is empty to run without systemd. MIRROR names another
# mirror than deb.debian.org, SUITE another release than bookworm; BASE an existing bare system, as debootstrap
# --variant=minbase makes it, of which a copy is used. Ends with success, and a sentence, where no such system is
# possible.

skip() { say "skipped: $*" && exit 0; }
[[ $boots && -x $(command -v systemd-nspawn) ]] || boots=''
((EUID == 0)) || skip "this needs root"
[[ -n ${BASE:-} ]] || command -v debootstrap >/dev/null || skip "there is no debootstrap"
compgen -G "$folder/troupe_*.deb" >/dev/null || die "there are no packages in $folder; run scripts/package first"

system=$(mktemp -d /var/tmp/troupe-system.XXXXXX)
node='' manager='' init=''
clean_up() {
  [[ -z $node ]] || kill -9 "$node" 2>/dev/null || true
  # This ends everything that runs in the system.
  [[ -z $manager ]] || { kill -9 "$init" "$manager" && wait "$manager"; } 2>/dev/null || true
  umount "$system/proc" 2>/dev/null || true
  rm -rf --one-file-system "$system" "$system.log"
}
trap clean_up EXIT
# inside COMMAND…: runs it in the system, as root. as USER COMMAND…: the same as another user.
inside() {
  local enter=(chroot "$system")
  [[ -z $init ]] || enter=(nsenter -t "$init" -m -u -i -p -r -w)
  "${enter[@]}" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
    http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" "$@"
}
as() { inside setpriv --reuid="$1" --regid="$(inside id -g "$1")" --clear-groups "${@:2}"; }
want() { "${@:2}" || die "$1"; }

say "a bare Debian in $system"
if [[ -n ${BASE:-} ]]; then
  cp -a --reflink=auto "$BASE/." "$system"
elif ! debootstrap --variant=minbase "${SUITE:-bookworm}" "$system" "${MIRROR:-http://deb.debian.org/debian}" \
  >"$system.log" 2>&1; then
  tail -5 "$system.log" >&2
  rm -f "$system.log"
  skip "debootstrap cannot make a system here"
fi
rm -f "$system.log"
# mktemp has made it root's alone, and its other users could not even reach /.
chmod 755 "$system"
mount -t proc proc "$system/proc" || skip "no /proc can be mounted here"
cp /etc/resolv.conf "$system/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$system/usr/sbin/policy-rc.d" && chmod 755 "$system/usr/sbin/policy-rc.d"
mkdir "$system/packages" && cp "$folder"/*.deb "$system/packages"

# boot: runs the system with a systemd of its own, if that is possible here.
boot() {
  if ! inside sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd-sysv' \
    >"$system.log" 2>&1; then
    tail -5 "$system.log" >&2
    die "systemd cannot be installed"
  fi
  umount "$system/proc"
  rm "$system/usr/sbin/policy-rc.d"
  # By default it forbids io_uring in containers, like other runtimes.
  systemd-nspawn --quiet --register=no --keep-unit --boot --directory="$system" --machine=troupe-check \
    --system-call-filter='io_uring_setup io_uring_enter io_uring_register' --console=pipe \
    </dev/null >"$system.log" 2>&1 &
  manager=$!
  for _ in {1..300}; do
    kill -0 "$manager" 2>/dev/null || break
    init=$(pgrep -P "$manager" | head -1) || true
    [[ -n $init ]] && inside systemctl is-system-running --wait 2>/dev/null | grep -qE 'running|degraded' && break
    init=''
    sleep 0.2
  done
  [[ -n $init ]] || { tail -5 "$system.log" >&2 && return 1; }
  # Its container has a boot of its own, but what systemd protects the tunables of sees that of the host; and node and
  # clients know by it that they are on one host.
  inside umount /proc/sys/kernel/random/boot_id 2>/dev/null || true
}

# boot_if_possible: boots the system if requested and possible.
boot_if_possible() {
  [[ -n $boots ]] || return 0
  say "boot it"
  boot || die "systemd does not boot in a container here; --no-boot runs without it"
}

# put FOLDER: installs its packages.
put() {
  inside sh -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends $1/*.deb" >"$system/log" 2>&1 ||
    { tail -20 "$system/log" >&2; die "the packages of $1 cannot be installed"; }
}

# tell: prints the output of the service, and fails.
tell() {
  if [[ -n $init ]]; then
    inside systemctl status --no-pager -n 20 troupe >&2 || true
  else
    cat "$system/node.log" >&2
  fi
  die "$@"
}
# start: starts the command of the unit, as its user, and waits as Type=notify does.
start() {
  local command
  if [[ -n $init ]]; then
    inside systemctl start troupe || tell "the service does not become ready"
    return
  fi
  command=$(sed -n 's/^ExecStart=//p' "$system/lib/systemd/system/troupe.service")
  : >"$system/node.log"
  rm -f "$system/var/lib/troupe/notify"
  python3 - "$system/var/lib/troupe/notify" "$system/notified" <<'PYTHON' &
import os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
    heard.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o777)
    heard.settimeout(60)
    while True:
        said = heard.recv(4096).decode()
        with open(sys.argv[2], "a") as out:
            out.write(said + "\n")
        if "STOPPING=1" in said:
            break
PYTHON
  : >"$system/notified"
  until [[ -S $system/var/lib/troupe/notify ]]; do sleep 0.05; done
  chroot --userspec=troupe:troupe "$system" /usr/bin/env -i PATH=/usr/bin NOTIFY_SOCKET=/var/lib/troupe/notify \
    sh -c "cd /var/lib/troupe && exec $command" >"$system/ready" 2>"$system/node.log" &
  node=$!
  for _ in {1..300}; do
    grep -q READY=1 "$system/notified" && break
    kill -0 "$node" 2>/dev/null || break
    sleep 0.1
  done
  grep -q READY=1 "$system/notified" || tell "the node does not become ready"
  grep -q '"event":"ready"' "$system/ready" || die "the node printed nothing on stdout"
}
stop() {
  if [[ -n $init ]]; then
    inside systemctl stop troupe
    [[ $(inside systemctl show --property Result --value troupe) == success ]] || tell "the service does not end well"
    return
  fi
  kill -TERM "$node"
  wait "$node" || die "the node ends with $?"
  node=''
  grep -q STOPPING=1 "$system/notified" || die "the node did not report that it stops"
}
