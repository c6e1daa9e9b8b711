// The operators cellc::forward and cellc::backward in C++, against torch's stable ABI, so that one build serves 2.10
// and all later versions. A call that is like an earlier one is made here, without Python: the extension module knows
// how (src/operator_calls.h), torch makes the results. Any other goes, as it came, to the operator of the same
// arguments that is registered from Python (cellc/operators.py), which remembers it.
//
// In torch's stable ABI arguments are 64-bit words on a stack. They are looked at and not taken before it is sure that
// the call is made here.
#include <torch/csrc/stable/library.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "python/src/operator_calls.h"

namespace {

using namespace cellc::python;
namespace stable = torch::stable::detail;

const OperatorTable* module_table = nullptr;

/// dtypes by their numbers in cellc.h, as DLPack and this torch have them.
struct Dtype {
  DLDataType dlpack;
  std::int32_t torch;
};
const Dtype* dtypes() {
  constexpr std::uint8_t kFloat = 2, kBfloat = 4;
  static const Dtype all[] = {{{kFloat, 32, 1}, aoti_torch_dtype_float32()},
                              {{kFloat, 64, 1}, aoti_torch_dtype_float64()},
                              {{kFloat, 16, 1}, aoti_torch_dtype_float16()},
                              {{kBfloat, 16, 1}, aoti_torch_dtype_bfloat16()}};
  return all;
}

std::vector<StableIValue> entries_of(StableIValue list) {
  const auto handle = stable::to<StableListHandle>(list);
  std::size_t size = 0;
  TORCH_ERROR_CODE_CHECK(torch_list_size(handle, &size));
  std::vector<StableIValue> entries(size);
  for (std::size_t i = 0; i < size; ++i) TORCH_ERROR_CODE_CHECK(torch_list_get_item(handle, i, &entries[i]));
  return entries;
}

/// False: of a dtype that no kernel reads.
bool read(AtenTensorHandle tensor, DLTensor& result) {
  std::int64_t rank = 0;
  std::int32_t dtype = 0, device_type = 0, device = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(tensor, &result.data));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor, &rank));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor, &result.shape));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor, &result.strides));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor, &dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor, &device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &device));
  result.rank = static_cast<std::int32_t>(rank);
  result.byte_offset = 0;
  if (device_type == aoti_torch_device_type_cpu())
    result.device = {kDLCpu, 0};
  else if (device_type == aoti_torch_device_type_cuda())
    result.device = {kDLCuda, device};
  else
    return false;
  for (int i = 0; i < 4; ++i)
    if (dtypes()[i].torch == dtype) {
      result.dtype = dtypes()[i].dlpack;
      return true;
    }
  return false;
}

/// Reads them all, one behind another.
class TensorReader {
 public:
  void append(const std::vector<StableIValue>& tensors) {
    for (const StableIValue tensor : tensors) append(tensor);
  }
  void append(StableIValue tensor) {
    if (!readable_) return;
    read_.emplace_back();
    readable_ = read(stable::to<AtenTensorHandle>(tensor), read_.back());
  }
  bool readable() const { return readable_ && !read_.empty(); }
  const std::vector<DLTensor>& tensors() const { return read_; }

 private:
  std::vector<DLTensor> read_;
  bool readable_ = true;
};

/// New tensors on a device, owned until they are given away.
class ResultMaker {
 public:
  explicit ResultMaker(DLDevice device) : device_(device) {}
  ResultMaker(const ResultMaker&) = delete;
  ResultMaker& operator=(const ResultMaker&) = delete;
  ~ResultMaker() {
    for (AtenTensorHandle tensor : made_) aoti_torch_delete_tensor_object(tensor);
  }

  OperatorResults results() { return {this, &make}; }
  /// As a list of torch.
  StableIValue give() {
    StableListHandle list = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_new_list_reserve_size(made_.size(), &list));
    for (AtenTensorHandle& tensor : made_) TORCH_ERROR_CODE_CHECK(torch_list_push_back(list, stable::from(tensor)));
    made_.clear();
    return stable::from(list);
  }

 private:
  static int make(void* context, const std::int64_t* shape, int rank, int dtype, void** data) {
    auto& self = *static_cast<ResultMaker*>(context);
    std::int64_t strides[kMostAxes], next = 1;
    if (rank > kMostAxes) return 1;
    for (int i = rank - 1; i >= 0; --i) {
      strides[i] = next;
      next *= shape[i] > 1 ? shape[i] : 1;  // as torch counts them
    }
    const bool on_gpu = self.device_.type == kDLCuda;
    const std::int32_t device_type = on_gpu ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
    AtenTensorHandle tensor = nullptr;
    if (aoti_torch_empty_strided(rank, shape, strides, dtypes()[dtype].torch, device_type, self.device_.number,
                                 &tensor) != TORCH_SUCCESS)
      return 1;
    self.made_.push_back(tensor);
    return aoti_torch_get_data_ptr(tensor, data) == TORCH_SUCCESS ? 0 : 1;
  }

  static constexpr int kMostAxes = 16;

  const DLDevice device_;
  std::vector<AtenTensorHandle> made_;
};

/// The arguments that both operators end with.
struct Lengths {
  explicit Lengths(const StableIValue* stack)
      : function(stable::to<std::int64_t>(stack[0])),
        names(stable::to<StringHandle>(stack[1])),
        finals(stable::to<bool>(stack[2])),
        reverse(stable::to<bool>(stack[3])),
        offsets(stable::to<StableIValue*>(stack[4])),
        length(stable::to<StableIValue*>(stack[5])),
        batch(stable::to<StableIValue*>(stack[6])),
        write(stable::to<StableIValue*>(stack[7])) {}

  void fill(OperatorCall& call) const {
    call.function = function;
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(names, &call.names));
    TORCH_ERROR_CODE_CHECK(torch_string_length(names, &call.names_length));
    call.length = length ? stable::to<std::int64_t>(*length) : -1;
    call.batch = batch ? stable::to<std::int64_t>(*batch) : -1;
    if (write) {
      const auto rows = stable::to<StringHandle>(*write);
      TORCH_ERROR_CODE_CHECK(torch_string_c_str(rows, &call.write));
      TORCH_ERROR_CODE_CHECK(torch_string_length(rows, &call.write_length));
    }
    call.finals = finals;
    call.reverse = reverse;
  }
  void take() const {
    torch_delete_string(names);
    if (write) torch_delete_string(stable::to<StringHandle>(*write));
    delete write;
    delete batch;
    delete length;  // offsets are never taken: calls that have some are made in Python
  }

  const std::int64_t function;
  const StringHandle names;
  const bool finals, reverse;
  StableIValue *const offsets, *const length, *const batch, *const write;
};

void take(StableIValue list, const std::vector<StableIValue>& tensors) {
  for (const StableIValue tensor : tensors) aoti_torch_delete_tensor_object(stable::to<AtenTensorHandle>(tensor));
  torch_delete_list(stable::to<StableListHandle>(list));
}

/// The same in Python, which says what is wrong with it. Its exceptions do not pass through torch's stable ABI: their
/// texts are kept for this, and what is thrown here is a RuntimeError there.
void call_python(const char* name, StableIValue* stack) {
  const AOTITorchError failed = torch_call_dispatcher(name, "", stack, TORCH_ABI_VERSION);
  if (const char* error = module_table ? module_table->take_error() : nullptr) {
    const std::string text = error;
    if (failed == TORCH_SUCCESS) take(stack[0], entries_of(stack[0]));
    throw std::runtime_error(text);
  }
  TORCH_ERROR_CODE_CHECK(failed);
}

void forward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Lengths lengths(stack + 1);
  const std::vector<StableIValue> tensors = entries_of(stack[0]);
  TensorReader reader;
  reader.append(tensors);
  if (module_table && !lengths.offsets && reader.readable()) {
    OperatorCall call = {};
    lengths.fill(call);
    call.tensors = reader.tensors().data();
    call.count = static_cast<int>(reader.tensors().size());
    ResultMaker made(reader.tensors()[0].device);
    const OperatorResults results = made.results();
    if (module_table->repeat(&call, &results)) {
      take(stack[0], tensors);
      lengths.take();
      stack[0] = made.give();
      return;
    }
  }
  call_python("cellc::forward_in_python", stack);
}

void backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Lengths lengths(stack + 4);
  const std::vector<StableIValue> tensors = entries_of(stack[0]), states = entries_of(stack[1]),
                                  cotangents = entries_of(stack[2]), needed = entries_of(stack[3]);
  constexpr std::size_t kBits = 64;
  OperatorCall call = {};
  TensorReader reader;
  reader.append(tensors);
  reader.append(states);
  for (std::size_t i = 0; i < cotangents.size() && i < kBits; ++i)
    if (const auto* cotangent = stable::to<StableIValue*>(cotangents[i])) {
      call.cotangents |= std::uint64_t{1} << i;
      reader.append(*cotangent);
    }
  for (std::size_t i = 0; i < needed.size() && i < kBits; ++i)
    call.wanted |= std::uint64_t{stable::to<bool>(needed[i])} << i;
  const bool fits = cotangents.size() <= kBits && needed.size() <= kBits;
  if (module_table && fits && !lengths.offsets && reader.readable()) {
    lengths.fill(call);
    call.backward = true;
    call.tensors = reader.tensors().data();
    call.count = static_cast<int>(reader.tensors().size());
    ResultMaker made(reader.tensors()[0].device);
    const OperatorResults results = made.results();
    if (module_table->repeat(&call, &results)) {
      take(stack[0], tensors);
      take(stack[1], states);
      for (const StableIValue one : cotangents)
        if (const auto* cotangent = stable::to<StableIValue*>(one)) {
          aoti_torch_delete_tensor_object(stable::to<AtenTensorHandle>(*cotangent));
          delete cotangent;
        }
      torch_delete_list(stable::to<StableListHandle>(stack[2]));
      torch_delete_list(stable::to<StableListHandle>(stack[3]));
      lengths.take();
      stack[0] = made.give();
      return;
    }
  }
  call_python("cellc::backward_in_python", stack);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(cellc, CPU, m) {
  m.impl("forward", &forward);
  m.impl("plain_forward", &forward);
  m.impl("backward", &backward);
}

STABLE_TORCH_LIBRARY_IMPL(cellc, CUDA, m) {
  m.impl("forward", &forward);
  m.impl("plain_forward", &forward);
  m.impl("backward", &backward);
}

/// Whether the module's table is of the version that this library knows.
extern "C" __attribute__((visibility("default"))) bool cellc_use_table(const void* table) {
  const auto* given = static_cast<const OperatorTable*>(table);
  if (given->version != kOperatorTableVersion) return false;
  module_table = given;
  return true;
}
