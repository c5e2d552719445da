#include "taps.hpp"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace netlab {
namespace {

// As the kernel's virtio_net_hdr_v1, whose own header is no C++.
struct VnetHeader {
  std::uint8_t flags;
  std::uint8_t gso_type;
  std::uint16_t header_bytes;
  std::uint16_t gso_bytes;  // of each segment's payload
  std::uint16_t checksum_start;
  std::uint16_t checksum_offset;
  std::uint16_t buffers;
};
constexpr std::uint8_t gso_none = 0;
constexpr std::uint8_t gso_tcp6 = 4;
constexpr std::uint8_t gso_congestion_flag = 0x80;

constexpr std::size_t frame_bytes_max = 66 * 1024;
constexpr std::size_t prefix_bytes = sizeof(VnetHeader);  // in front of each frame
constexpr std::size_t gap_bytes = 24;  // preamble, checksum and gap around each frame on a wire
constexpr std::size_t ethernet_bytes = 14;
constexpr std::size_t ip4_and_tcp_bytes = 52;  // with TCP's time stamps
constexpr std::size_t ip6_and_tcp_bytes = 72;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void enter_namespace(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) fail("enter the network namespace " + path);
  close(fd);
}

ifreq request_for(const TapOptions& options) {
  ifreq request{};
  options.interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

int open_tap(const TapOptions& options) {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) fail("open /dev/net/tun");
  ifreq request = request_for(options);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(fd, TUNSETIFF, &request) != 0) fail("create the interface " + options.interface);
  int header = static_cast<int>(prefix_bytes);
  if (ioctl(fd, TUNSETVNETHDRSZ, &header) != 0) fail("set the header of " + options.interface);
  const unsigned long offload = options.offload ? TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 : 0;
  if (ioctl(fd, TUNSETOFFLOAD, offload) != 0) fail("set the offload of " + options.interface);
  return fd;
}

void configure(const TapOptions& options, std::size_t port) {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (any < 0) fail("create a socket");
  ifreq request = request_for(options);
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  request.ifr_hwaddr.sa_data[0] = 2;
  request.ifr_hwaddr.sa_data[5] = static_cast<char>(port + 1);
  if (ioctl(any, SIOCSIFHWADDR, &request) != 0) fail("set a MAC address");
  request = request_for(options);
  request.ifr_mtu = options.mtu;
  if (ioctl(any, SIOCSIFMTU, &request) != 0) fail("set the MTU");
  request.ifr_qlen = 4000;
  if (ioctl(any, SIOCSIFTXQLEN, &request) != 0) fail("set the queue length");
  close(any);
}

// What the frame costs on a wire, where each of its segments is a frame with headers of its own.
std::size_t wire_bytes(const std::vector<char>& data) {
  VnetHeader header;
  std::memcpy(&header, data.data(), sizeof header);
  const std::size_t bytes = data.size() - prefix_bytes;
  if (header.gso_type == gso_none || header.gso_bytes == 0) return bytes + gap_bytes;
  const bool six = (header.gso_type & ~gso_congestion_flag) == gso_tcp6;
  const std::size_t headers = ethernet_bytes + (six ? ip6_and_tcp_bytes : ip4_and_tcp_bytes);
  const std::size_t payload = bytes > headers ? bytes - headers : 1;
  const std::size_t segments = (payload + header.gso_bytes - 1) / header.gso_bytes;
  return payload + segments * (headers + gap_bytes);
}

}  // namespace

Taps::Taps(std::span<const std::string> namespaces, const TapOptions& options)
    : buffer_(frame_bytes_max) {
  const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (home < 0) fail("open this process's network namespace");
  for (const std::string& name : namespaces) {
    enter_namespace("/run/netns/" + name);
    descriptors_.push_back(open_tap(options));
    configure(options, descriptors_.size() - 1);
  }
  if (setns(home, CLONE_NEWNET) != 0) fail("return to this process's network namespace");
  close(home);
}

Taps::~Taps() {
  for (const int fd : descriptors_) close(fd);
}

void Taps::set_carrier(std::size_t port, bool on) const {
  int value = on ? 1 : 0;
  if (ioctl(descriptors_[port], TUNSETCARRIER, &value) != 0) fail("set the carrier of a port");
}

std::optional<Frame> Taps::read(std::size_t port) {
  const ssize_t got = ::read(descriptors_[port], buffer_.data(), buffer_.size());
  if (got < static_cast<ssize_t>(prefix_bytes + ethernet_bytes)) return std::nullopt;
  Frame frame;
  frame.from = port;
  frame.data.assign(buffer_.data(), buffer_.data() + got);
  frame.wire_bytes = wire_bytes(frame.data);
  return frame;
}

void Taps::write(const Frame& frame) const {
  [[maybe_unused]] const ssize_t written =
      ::write(descriptors_[frame.to], frame.data.data(), frame.data.size());
}

std::vector<std::size_t> Taps::receivers(const Frame& frame) const {
  std::array<unsigned char, 6> mac;
  std::memcpy(mac.data(), frame.data.data() + prefix_bytes, mac.size());
  std::vector<std::size_t> ports;
  const bool to_all = (mac[0] & 1) != 0;
  for (std::size_t port = 0; port < descriptors_.size(); ++port) {
    if (port != frame.from && (to_all || (mac[0] == 2 && mac[5] == port + 1))) {
      ports.push_back(port);
    }
  }
  return ports;
}

}  // namespace netlab
