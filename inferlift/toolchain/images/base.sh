#!/bin/sh
# Finishes the base of app images; $1 is its root folder.
set -eu
chroot "$1" update-ca-certificates
# pip carries certificates of its own and would not trust the machine's.
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$1/etc/pip.conf"
chroot "$1" apt-get clean
rm -rf "$1"/var/lib/apt/lists/*
