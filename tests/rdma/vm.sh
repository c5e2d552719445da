#!/bin/bash
# Runs a command in a throw-away virtual machine that has soft-RoCE devices.
#
#   vm.sh [--seconds N] [--pair] DIRECTORY COMMAND...
#
# After N seconds, 300 unless said, the machine is ended.
#
# DIRECTORY is kept: the extracted kernel (apt fetches 70 MB), the initial file system and the last
# run's console. The command's output goes to standard output; the exit status is the command's, or
# 77 where no machine can be started.
#
# The kernel is Debian's package, extracted and never installed. The guest sees the host's root
# file system read-only, with memory above it, so that every library, tool and build tree is where
# it is on the host. It has no network device. rxe0 lies on dummy0, 10.77.0.1. With --pair rxeA and
# rxeB lie on the two ends of a virtual cable, 10.77.1.1 and 10.77.1.2, and packets really cross it.
set -euo pipefail

seconds=300
pair=0
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2; shift 2 ;;
    --pair) pair=1; shift ;;
    *) break ;;
  esac
done
home=$1
shift
mkdir -p "$home/out"

cannot() {
  echo "no virtual machine: $*" >&2
  exit 77
}

for tool in qemu-system-x86_64 busybox cpio modprobe depmod dpkg apt-get; do
  command -v "$tool" > /dev/null || cannot "$tool is not here"
done

if ! ls "$home"/kernel/boot/vmlinuz-* > /dev/null 2>&1; then
  package=$(apt-cache depends linux-image-amd64 2> /dev/null |
    awk '/Depends: linux-image-/ { print $2; exit }')
  [ -n "$package" ] || cannot "there is no package linux-image-amd64"
  (cd "$home" && apt-get download "$package" > /dev/null 2>&1) || cannot "no kernel from apt-get"
  dpkg -x "$home/$package"_*.deb "$home/kernel"
  rm -f "$home/$package"_*.deb
fi
kernel=$(ls "$home"/kernel/boot/vmlinuz-* | head -1)
version=${kernel##*/vmlinuz-}

if [ ! -f "$home/initrd.gz" ] || [ "$0" -nt "$home/initrd.gz" ]; then
  root=$home/initrd
  rm -rf "$root"
  mkdir -p "$root"/{bin,proc,sys,dev,modules,lower,memory,root}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for name in sh mount insmod mkdir echo chroot poweroff; do ln -s busybox "$root/bin/$name"; done
  [ -f "$home/kernel/lib/modules/$version/modules.dep" ] || depmod -b "$home/kernel" "$version"
  # Without crc32_generic rdma_rxe finds no checksum. modprobe prints the order of loading.
  for module in virtio_pci 9pnet_virtio 9p overlay dummy veth crc32_generic ib_core ib_uverbs \
    rdma_ucm rdma_rxe; do
    modprobe -d "$home/kernel" -S "$version" --show-depends "$module" |
      awk '$1 == "insmod" { print $2 }'
  done | awk '!seen[$0]++' | while read -r file; do
    cp "$file" "$root/modules/"
    basename "$file" >> "$root/modules/order"
  done
  cat > "$root/init" << 'INIT'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r file; do insmod "/modules/$file" || echo "no module $file"; done < /modules/order
options=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o $options,cache=loose,ro host /lower || poweroff -f
mount -t tmpfs -o size=75% memory /memory
mkdir -p /memory/up /memory/work
mount -t overlay -o lowerdir=/lower,upperdir=/memory/up,workdir=/memory/work root /root
for place in proc sys dev; do mkdir -p /root/$place; mount -o bind /$place /root/$place; done
mkdir -p /root/dev/shm /root/dev/pts /root/rdma_out
mount -t tmpfs shm /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t tmpfs run /root/run
mount -t 9p -o $options out /root/rdma_out
chroot /root /bin/bash /rdma_out/guest > /dev/ttyS1 2>&1
poweroff -f
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1 > "$home/initrd.gz")
fi

rm -f "$home/out/status"
printf '%q ' "$@" > "$home/out/command"
{
  printf 'cd %q\npair=%s\n' "$PWD" "$pair"
  cat << 'GUEST'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
# Soft-RoCE: UCX drops datagrams otherwise, over which it also connects.
export UCX_UD_ETH_DGID_CHECK=n
ip link set lo up
hostname rdma
ip link add dummy0 type dummy 2> /dev/null
ip link set dummy0 mtu 9000 up
ip addr add 10.77.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
if [ $pair = 1 ]; then
  ip link add vA type veth peer name vB
  ip addr add 10.77.1.1/32 dev vA
  ip addr add 10.77.1.2/32 dev vB
  for name in all vA vB; do
    echo 1 > /proc/sys/net/ipv4/conf/$name/accept_local
    echo 0 > /proc/sys/net/ipv4/conf/$name/rp_filter
  done
  ip link set vA mtu 4500 up
  ip link set vB mtu 4500 up
  # What comes in is local; what goes from one address to the other leaves through the cable.
  ip rule add pref 1 iif vA lookup local
  ip rule add pref 1 iif vB lookup local
  ip route add 10.77.1.2 dev vA table 77 src 10.77.1.1
  ip route add 10.77.1.1 dev vB table 77 src 10.77.1.2
  ip rule add pref 2 to 10.77.1.0/24 lookup 77
  ip rule add pref 3 lookup local
  ip rule del pref 0
  rdma link add rxeA type rxe netdev vA
  rdma link add rxeB type rxe netdev vB
fi
for try in 1 2 3 4 5 6 7 8 9 10; do [ -e /dev/infiniband/uverbs0 ] && break; sleep 0.1; done
ulimit -l unlimited
ulimit -n 65536
eval "$(cat /rdma_out/command)"
echo $? > /rdma_out/status
sync
GUEST
} > "$home/out/guest"

# Emulated: a virtual machine within one often has no hardware for it.
timeout "$seconds" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi,tb-size=512 \
  -cpu max,la57=off -smp 2 -m 4G -nodefaults -no-user-config -nographic -nic none -no-reboot \
  -kernel "$kernel" -initrd "$home/initrd.gz" \
  -append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr tsc=reliable \
no_timer_check random.trust_cpu=on audit=0 nowatchdog" \
  -serial "file:$home/console" -serial stdio -monitor none \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -virtfs "local,path=$home/out,mount_tag=out,security_model=none,multidevs=remap" \
  -device virtio-rng-pci < /dev/null || ended=$?
case ${ended:-0} in
  0) ;;
  124) echo "the machine was ended after $seconds s (--seconds)" >&2 ;;
  *) echo "the machine ended with $ended" >&2 ;;
esac
[ -f "$home/out/status" ] || {
  echo "the machine did not come to the end of its command; its console:" >&2
  tail -20 "$home/console" >&2
  exit 1
}
exit "$(cat "$home/out/status")"
