#!/bin/sh
# Finishes the lab's host image; $1 is its root folder.
set -eu
root=$1
chroot "$root" update-ca-certificates
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"

# A role starts what its host is for; nothing else may hold ports or memory.
for unit in haproxy nginx prometheus prometheus-alertmanager prometheus-blackbox-exporter prometheus-node-exporter pdns unbound unbound-resolvconf nftables podman \
    podman-auto-update podman-restart podman.socket podman-auto-update.timer; do
    chroot "$root" systemctl disable "$unit" >/dev/null 2>&1 || true
done
for timer in prometheus-node-exporter-apt prometheus-node-exporter-nvme \
    prometheus-node-exporter-smartmon prometheus-node-exporter-ipmitool-sensor \
    prometheus-node-exporter-mellanox-hca-temp; do
    chroot "$root" systemctl disable "$timer.timer" >/dev/null 2>&1 || true
done
# Masked, not only disabled: an upgrade in the middle of a play takes apt's lock.
for unit in apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
printf 'APT::Periodic::Enable "0";\n' >"$root/etc/apt/apt.conf.d/99inferlift-no-timers"

# These connections never leave the machine, and a stage makes dozens: the exchange that withstands quantum computers
# costs ten times the processor of this one. Hosts elsewhere keep their sshd's own choice.
printf 'KexAlgorithms curve25519-sha256\n' >"$root/etc/ssh/sshd_config.d/20-inferlift-lab.conf"

# Keys in an image would be the same on every host.
rm -f "$root"/etc/ssh/ssh_host_*
cat >"$root/etc/systemd/system/inferlift-hostkey.service" <<'UNIT'
[Unit]
Description=SSH host key of this machine
Before=ssh.service ssh.socket
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/ssh-keygen -q -t ed25519 -N "" -C "" -f /etc/ssh/ssh_host_ed25519_key

[Install]
RequiredBy=ssh.service
UNIT
chroot "$root" systemctl enable -q inferlift-hostkey.service
: >"$root/etc/machine-id"

# Debian's unit binds paths into its namespace, which podman refuses (226/NAMESPACE).
mkdir -p "$root/etc/systemd/system/haproxy.service.d"
printf '[Service]\nBindReadOnlyPaths=\n' >"$root/etc/systemd/system/haproxy.service.d/podman.conf"

# Empty lists with a fresh date look up to date to Ansible's cache_valid_time. Apt is cleaned here and not by
# mmdebstrap, which does so after this script and touches the folder again.
chroot "$root" apt-get clean
rm -rf "$root"/var/lib/apt/lists/*
touch -d '2000-01-01 00:00 UTC' "$root/var/lib/apt/lists"
