// libibverbs' functions, loaded at first use: programs that do not use RDMA do not depend on it.
// Tests put a software network in their place. Included only by sources that are built where the
// headers of libibverbs are.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "core/error.hpp"

namespace pith {

// As libibverbs documents them, ibv_ before each name.
struct VerbsLibrary {
  Error why_not;  // null: all functions are there

  ibv_device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(ibv_device** list) = nullptr;
  const char* (*get_device_name)(ibv_device* device) = nullptr;
  ibv_context* (*open_device)(ibv_device* device) = nullptr;
  int (*close_device)(ibv_context* context) = nullptr;
  int (*query_device)(ibv_context* context, ibv_device_attr* attributes) = nullptr;
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) = nullptr;
  int (*query_gid_ex)(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context* context) = nullptr;
  int (*dealloc_pd)(ibv_pd* domain) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* data, std::size_t bytes, int access) = nullptr;
  // Null where the library is older than dma-bufs.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* domain, std::uint64_t offset, std::size_t bytes,
                           std::uint64_t address, int descriptor, int access) = nullptr;
  int (*dereg_mr)(ibv_mr* region) = nullptr;
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context) = nullptr;
  int (*destroy_comp_channel)(ibv_comp_channel* channel) = nullptr;
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* cq_context,
                       ibv_comp_channel* channel, int vector) = nullptr;
  int (*destroy_cq)(ibv_cq* queue) = nullptr;
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** queue, void** cq_context) = nullptr;
  void (*ack_cq_events)(ibv_cq* queue, unsigned count) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd* domain, ibv_qp_init_attr* attributes) = nullptr;
  int (*modify_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask) = nullptr;
  int (*destroy_qp)(ibv_qp* pair) = nullptr;
  int (*get_async_event)(ibv_context* context, ibv_async_event* event) = nullptr;
  void (*ack_async_event)(ibv_async_event* event) = nullptr;
  const char* (*event_type_str)(ibv_event_type type) = nullptr;
  const char* (*wc_status_str)(ibv_wc_status status) = nullptr;
  int (*post_send)(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) = nullptr;
  int (*post_recv)(ibv_qp* pair, ibv_recv_wr* work, ibv_recv_wr** bad) = nullptr;
  int (*poll_cq)(ibv_cq* queue, int entries, ibv_wc* completions) = nullptr;
  int (*req_notify_cq)(ibv_cq* queue, int solicited_only) = nullptr;
};

// Loaded once, never unloaded. Thread-safe.
const VerbsLibrary& verbs_library();

}  // namespace pith
