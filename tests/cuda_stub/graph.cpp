// Graphs: instantiated from a capture, replayed in stream order.
#include <algorithm>

#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

// Which nodes of one replay are done.
class Run {
 public:
  explicit Run(std::size_t nodes) : done_(nodes), left_(nodes) {}
  void wait_for(std::size_t node) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_[node]; });
  }
  void finish(std::size_t node) {
    std::lock_guard lock(mutex_);
    done_[node] = true;
    --left_;
    changed_.notify_all();
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> done_;
  std::size_t left_;
};

void run_lane(const GraphBody& graph, Run& run, std::size_t lane) {
  for (const auto& node : graph.nodes) {
    if (node->lane != lane) continue;
    for (CUgraphNode before : node->after) {
      if (before->lane != lane) run.wait_for(before->index);
    }
    node->run();
    run.finish(node->index);
  }
}

}  // namespace

void ExecBody::replay() {
  std::lock_guard lock(serial);
  auto run = std::make_shared<Run>(graph->nodes.size());
  for (std::size_t lane = 1; lane < graph->lanes; ++lane) {
    workers[lane - 1]->push([g = graph, run, lane] { run_lane(*g, *run, lane); });
  }
  run_lane(*graph, *run, 0);
  run->wait_for_all();
}

void release(CUuserObject object, unsigned count) {
  if (object->references.fetch_sub(count) != count) return;
  object->destroy(object->data);
  delete object;
}

ExecBody::~ExecBody() {
  for (const auto& worker : workers) worker->close();
}

extern "C" {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  if (CUresult r = enter(Call::alloc); r != kSuccess) return r;
  if (exec == nullptr || graph == nullptr) return kErrorInvalidValue;
  auto body = std::make_shared<ExecBody>();
  body->graph = graph->body;
  for (std::size_t lane = 1; lane < graph->body->lanes; ++lane)
    body->workers.push_back(Queue::start());
  *exec = new CUgraphExec_st{std::move(body)};
  return kSuccess;
}

// In a capturing stream the whole graph becomes one node.
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  if (CUresult r = enter(Call::graph_launch); r != kSuccess) return r;
  if (exec == nullptr) return kErrorInvalidValue;
  return submit(stream, [body = exec->body] { body->replay(); });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (graph == nullptr || count == nullptr) return kErrorInvalidValue;
  const auto& all = graph->body->nodes;
  if (nodes == nullptr) {
    *count = all.size();
    return kSuccess;
  }
  const std::size_t copied = std::min(*count, all.size());
  for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < copied ? all[i].get() : nullptr;
  *count = copied;
  return kSuccess;
}

CUresult cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned references,
                            unsigned flags) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  const bool valid = object != nullptr && destroy != nullptr && references > 0 &&
                     flags == kUserObjectNoDestructorSync;
  if (!valid) return kErrorInvalidValue;
  *object = new CUuserObject_st{data, destroy, references};
  return kSuccess;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (object == nullptr || count == 0) return kErrorInvalidValue;
  release(object, count);
  return kSuccess;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                 unsigned flags) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (graph == nullptr || object == nullptr || count == 0) return kErrorInvalidValue;
  if ((flags & kGraphUserObjectMove) == 0) object->references += count;
  std::lock_guard lock(state().mutex);
  graph->body->retained.emplace_back(object, count);
  return kSuccess;
}

CUresult cuGraphDestroy(CUgraph graph) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (graph == nullptr) return kErrorInvalidValue;
  delete graph;
  return kSuccess;
}

// A launched graph runs to its end first.
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (CUresult r = enter(Call::free); r != kSuccess) return r;
  if (exec == nullptr) return kErrorInvalidValue;
  delete exec;
  return kSuccess;
}

}  // extern "C"

}  // namespace pith::cuda
