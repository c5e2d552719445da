#include "communicator.hpp"

#include <cstring>
#include <utility>

#include "errors.hpp"

namespace pith_torch {

namespace {

std::unique_ptr<Communicator> held(pithComm_t comm) {
  return comm ? std::make_unique<Communicator>(comm) : nullptr;
}

}  // namespace

Communicator::~Communicator() { pithCommDestroy(comm_.load()); }

pithComm_t Communicator::get() const {
  pithComm_t comm = comm_.load(std::memory_order_acquire);
  if (!comm) C10_THROW_ERROR(DistBackendError, "this process group of pith was aborted");
  return comm;
}

void Communicator::abort() { pithCommAbort(comm_.exchange(nullptr)); }

std::unique_ptr<Communicator> Communicator::split(int color, int key) const {
  pithComm_t child = nullptr;
  check(pithCommSplit(get(), color, key, &child, nullptr));
  return held(child);
}

std::unique_ptr<Communicator> Communicator::shrink(std::vector<int> excluded, int flags) const {
  pithComm_t child = nullptr;
  check(pithCommShrink(get(), excluded.empty() ? nullptr : excluded.data(),
                       static_cast<int>(excluded.size()), &child, nullptr, flags));
  return held(child);
}

int Communicator::rank() const {
  int rank = 0;
  check(pithCommUserRank(get(), &rank));
  return rank;
}

int Communicator::size() const {
  int size = 0;
  check(pithCommCount(get(), &size));
  return size;
}

std::string make_unique_id() {
  pithUniqueId id;
  check(pithGetUniqueId(&id));
  return std::string(id.internal, sizeof id.internal);
}

std::unique_ptr<Communicator> join(const std::string& unique_id, int rank, int size,
                                   std::optional<int> timeout_s) {
  pithUniqueId id;
  TORCH_CHECK_VALUE(unique_id.size() == sizeof id.internal, "the store holds an id of ",
                    unique_id.size(), " bytes, expected ", sizeof id.internal);
  std::memcpy(id.internal, unique_id.data(), sizeof id.internal);
  pithComm_t comm = nullptr;
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  if (timeout_s) config.timeout = *timeout_s;
  check(pithCommInitRankConfig(&comm, size, id, rank, &config));
  return held(comm);
}

}  // namespace pith_torch
