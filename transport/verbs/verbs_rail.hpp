// A port of an RDMA device as one process uses it: its place in the network, a protection domain,
// one completion queue for all connections and the channel on which a rank sleeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "settings/verbs_settings.hpp"
#include "transport/verbs/verbs_library.hpp"

namespace pith {

// What the user asks of devices, and the address of this rank in numbers; empty: none.
struct VerbsWish : VerbsSettings {
  std::string host;
};

// Where a port is in the network; travels to peers.
struct VerbsPlace {
  std::uint8_t gid[16] = {};
  std::uint16_t lid = 0;
  std::uint8_t link_layer = 0;
  std::uint8_t mtu = 0;  // ibv_mtu
};

class VerbsRail {
 public:
  // All ports that fit the wish, the one that carries `host` first; or why there is none.
  static Expected<std::vector<std::unique_ptr<VerbsRail>>> open_all(const VerbsLibrary& verbs,
                                                                    const VerbsWish& wish);
  ~VerbsRail();
  VerbsRail(const VerbsRail&) = delete;
  VerbsRail& operator=(const VerbsRail&) = delete;

  // "mlx5_0:1"
  const std::string& name() const { return name_; }
  const VerbsLibrary& verbs() const { return verbs_; }
  const VerbsWish& wish() const { return wish_; }
  const VerbsPlace& place() const { return place_; }
  std::uint8_t port() const { return port_; }
  std::uint8_t gid_index() const { return gid_index_; }
  // Whether it registers memory that a dma-buf describes.
  bool takes_dmabufs() const;
  // The longest message of one work request.
  std::size_t message_bytes() const { return message_bytes_; }
  ibv_pd* domain() const { return domain_; }
  ibv_cq* queue() const { return queue_; }

  // The queue has room for `entries` completions; before any connection is made.
  Error make_queue(std::size_t entries);
  // Takes completions; an error is the device's.
  Expected<std::size_t> poll(std::span<ibv_wc> completions);

  int descriptor() const { return channel_->fd; }
  int event_descriptor() const { return context_->async_fd; }
  // Asks for a wake-up by the next completion.
  Error arm();
  // Takes wake-ups; true if there was one.
  void disarm();
  // What has befallen the device or port since the last call.
  struct Event {
    std::string words;    // empty: nothing that matters
    bool is_end = false;  // nothing more comes from the device
  };
  Event take_event();

 private:
  VerbsRail(const VerbsLibrary& verbs, const VerbsWish& wish) : verbs_(verbs), wish_(wish) {}
  static std::unique_ptr<VerbsRail> open(const VerbsLibrary& verbs, const VerbsWish& wish,
                                         ibv_device* device, std::uint8_t port, Error& why_not);
  Error open_port(ibv_device* device, std::uint8_t port);
  Error try_registration() const;
  Error find_gid(const ibv_port_attr& port);
  bool carries_host() const;

  const VerbsLibrary& verbs_;
  const VerbsWish wish_;
  std::string name_;
  VerbsPlace place_;
  std::uint8_t port_ = 1;
  std::uint8_t gid_index_ = 0;
  std::size_t message_bytes_ = 0;
  int queue_entries_max_ = 0;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
};

}  // namespace pith
