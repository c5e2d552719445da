#include <Python.h>

#include "process_group_pith.hpp"

#include <algorithm>
#include <utility>

#include "dtypes.hpp"
#include "errors.hpp"
#include "tensor_lists.hpp"

namespace pith_torch {

namespace {

// Rank 0 tells the others where the ranks meet.
std::unique_ptr<Communicator> meet(c10d::Store& store, int rank, int size,
                                   std::optional<int> timeout_s) {
  const std::string key = "pith/unique_id";
  if (rank == 0) {
    const std::string id = make_unique_id();
    store.set(key, std::vector<std::uint8_t>(id.begin(), id.end()));
    return join(id, rank, size, timeout_s);
  }
  const std::vector<std::uint8_t> id = store.get(key);
  return join(std::string(id.begin(), id.end()), rank, size, timeout_s);
}

// Gives Python's lock away, if this thread has it: a future's callback may be waiting for it, and
// the thread that runs the callback is waited for.
class WithoutInterpreter {
 public:
  WithoutInterpreter()
      : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutInterpreter() {
    if (state_) PyEval_RestoreThread(state_);
  }
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  PyThreadState* state_;
};

// Not a child of `comm`, which would have its timeout.
std::unique_ptr<Communicator> for_messages(const Communicator& comm) {
  const int rank = comm.rank();
  const int size = comm.size();
  std::string id(PITH_UNIQUE_ID_BYTES, 0);
  if (rank == 0) id = make_unique_id();
  check(pithBcast(id.data(), id.size(), pithUint8, 0, comm.get(), nullptr));
  return join(id, rank, size, 0);
}

}  // namespace

ProcessGroupPith::ProcessGroupPith(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   c10::intrusive_ptr<PithOptions> options)
    : ProcessGroupPith(meet(*store, rank, size, options->calls_timeout()), store, options) {}

ProcessGroupPith::ProcessGroupPith(std::unique_ptr<Communicator> comm,
                                   c10::intrusive_ptr<c10d::Store> store,
                                   c10::intrusive_ptr<PithOptions> options)
    : Collectives(std::move(comm)),
      store_(std::move(store)),
      options_(std::move(options)),
      messages_(std::make_shared<Messages>(for_messages(*comm_), options_->messages_timeout_s())) {
  init();  // asks for the name, so it cannot be called by a base class
}

ProcessGroupPith::~ProcessGroupPith() {
  const WithoutInterpreter unlocked;
  shutdown();
}

// Messages that have not ended may never end, because nobody receives them.
void ProcessGroupPith::shutdown() { completer_->stop(); }

void ProcessGroupPith::abort() {
  comm_->abort();
  messages_->abort();
}

c10d::ErrorType ProcessGroupPith::getError() {
  pithResult_t state = pithSuccess;
  check(pithCommGetAsyncError(comm_->get(), &state));
  const bool fine = state == pithSuccess || state == pithInProgress;
  return fine ? c10d::ErrorType::SUCCESS : c10d::ErrorType::REMOTE_ERROR;
}

std::vector<int> ProcessGroupPith::failed() const {
  int count = size_;
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  check(pithCommGetFailed(comm_->get(), ranks.data(), &count));
  ranks.resize(static_cast<std::size_t>(count));
  return ranks;
}

void ProcessGroupPith::check_peer(int peer, const char* what) const {
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_, what, ": rank is ", peer, ", expected 0 to ",
                    size_ - 1);
  TORCH_CHECK_VALUE(peer != rank_, what, ": rank ", peer, " is this rank itself");
}

WorkReturned ProcessGroupPith::send(TensorList& tensors, int to, int tag) {
  const at::Tensor& tensor = only(tensors, "send");
  check_peer(to, "send");
  TORCH_CHECK_NOT_IMPLEMENTED(!tensor.is_cuda(), "pith sends only host tensors between two ranks");
  return run_pending({c10d::OpType::SEND, "pith:send", {tensor}, {}},
                     std::make_unique<MessagePending>(messages_, messages_->send(tensor, to, tag)));
}

WorkReturned ProcessGroupPith::receive(TensorList& tensors, int from, int tag, CallFacts facts) {
  const at::Tensor& tensor = only(tensors, "recv");
  TORCH_CHECK_NOT_IMPLEMENTED(!tensor.is_cuda(),
                              "pith receives only host tensors between two ranks");
  facts.outputs = {tensors};
  return run_pending(std::move(facts), std::make_unique<MessagePending>(
                                           messages_, messages_->receive(tensor, from, tag)));
}

WorkReturned ProcessGroupPith::recv(TensorList& tensors, int from, int tag) {
  check_peer(from, "recv");
  return receive(tensors, from, tag, {c10d::OpType::RECV, "pith:recv", {}, {}});
}

WorkReturned ProcessGroupPith::recvAnysource(TensorList& tensors, int tag) {
  return receive(tensors, -1, tag, {c10d::OpType::RECVANYSOURCE, "pith:recvAnySource", {}, {}});
}

WorkReturned ProcessGroupPith::barrier(const c10d::BarrierOptions& opts) {
  return run({{c10d::OpType::BARRIER, "pith:barrier", {}, {}},
              [](pithComm_t comm, pithStream_t) { check(pithBarrier(comm, nullptr)); },
              {},
              false,
              {}},
             opts.asyncOp);
}

// By the store, so that it tells who is missing whatever state the communicator is in.
void ProcessGroupPith::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  const std::string prefix = "pith/monitored/" + std::to_string(monitored_++) + "/";
  const std::vector<std::uint8_t> here{1};
  if (rank_ != 0) {
    store_->set(prefix + std::to_string(rank_), here);
    return store_->wait({prefix + "all"}, timeout);
  }
  const auto end = Clock::now() + timeout;
  std::string missing;
  for (int rank = 1; rank < size_; ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    try {
      store_->wait({prefix + std::to_string(rank)}, std::max(left, std::chrono::milliseconds(1)));
    } catch (const std::exception&) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      if (!wait_all_ranks) break;
    }
  }
  TORCH_CHECK(missing.empty(), "[Rank 0]: ", wait_all_ranks ? "Ranks " : "Rank ", missing,
              " failed to pass monitoredBarrier in ", timeout.count(), " ms");
  store_->set(prefix + "all", here);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupPith::with(
    std::unique_ptr<Communicator> comm, c10::intrusive_ptr<c10d::Store> store,
    const c10::intrusive_ptr<Backend::Options>& opts) const {
  auto options = c10::make_intrusive<PithOptions>(opts ? opts->timeout : options_->timeout,
                                                  options_->setting_s);
  return c10::make_intrusive<ProcessGroupPith>(std::move(comm), std::move(store),
                                               std::move(options));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupPith::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Backend::Options>& opts) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  const bool member = place != ranks.end();
  std::unique_ptr<Communicator> child;
  {
    const std::lock_guard lock(mutex_);
    child = comm_->split(member ? ranks.front() : PITH_SPLIT_NOCOLOR,
                         static_cast<int>(place - ranks.begin()));
  }
  return child ? with(std::move(child), store, opts) : nullptr;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupPith::shrink(
    const std::vector<int64_t>& excluded, int flags,
    const c10::intrusive_ptr<Backend::Options>& opts) {
  std::unique_ptr<Communicator> child;
  {
    const std::lock_guard lock(mutex_);
    child = comm_->shrink({excluded.begin(), excluded.end()},
                          flags ? PITH_SHRINK_ABORT : PITH_SHRINK_DEFAULT);
  }
  return with(std::move(child), store_, opts);
}

}  // namespace pith_torch
