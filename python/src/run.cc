#include "run.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "call_arrays.h"
#include "faults.h"
#include "placed_call.h"
#include "room.h"

namespace cellc::python {
namespace {

/// Whether that is an array.
bool hold(Given& given, nb::handle array) {
  try {
    return given.held.take(array);
  } catch (const HeldArray::NotDense& tensor) {
    throw ArgumentFault{"DTypeError", given.info->key,
                        given.info->label() + " is " + tensor.kind + "; expected a dense tensor"};
  }
}

void convert(Given& given, const nb::object& maker) {
  const ArrayInfo& info = *given.info;
  try {
    given.object = maker.attr("convert")(given.object, info.dtype);
    if (hold(given, given.object)) return;
  } catch (const nb::python_error&) {  // what NumPy has to say names no argument
  }
  throw ArgumentFault{"DTypeError", info.key, info.label() + ": expected an array, a number or a list of numbers"};
}

[[noreturn]] void refuse_unknown(const Kernel& kernel, cellc_direction direction, cellc_quantity quantity, Group group,
                                 const std::string& name) {
  static constexpr const char* kinds[] = {"argument", "cotangent", "gradient", "tangent"};
  std::string known;
  for (const ArrayInfo& info : kernel.arrays(direction))
    if (info.quantity == quantity && info.group() == group && !(group == Group::Read && info.written))
      known += (known.empty() ? "" : ", ") + info.key;
  throw ArgumentFault{
      "ArgumentError", name,
      std::string("there is no ") + kinds[quantity] + " '" + name + "'; there is " + (known.empty() ? "none" : known)};
}

/// What calls in some direction are given under names that stand for arrays of one kind.
struct Kind {
  cellc_direction direction;
  cellc_quantity quantity;
  Group group;
};

void append_one(const Kernel& kernel, const Kind& kind, PyObject* key, PyObject* value, const nb::object& maker,
                std::vector<Given>& given) {
  if (value == Py_None) return;
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(key, &length);
  if (!text) throw nb::python_error();
  const ArrayInfo* info =
      kernel.find(kind.direction, kind.quantity, kind.group, {text, static_cast<std::size_t>(length)});
  if (!info || info->written) refuse_unknown(kernel, kind.direction, kind.quantity, kind.group, text);
  Given one;
  one.info = info;
  one.object = nb::borrow(value);
  if (!hold(one, value)) {
    one.is_scalar = PyFloat_Check(value) || PyLong_Check(value);
    if (!one.is_scalar) convert(one, maker);
  }
  given.push_back(std::move(one));
}

/// Appends what `named` has.
void append_given(const Kernel& kernel, const Kind& kind, const nb::dict& named, const nb::object& maker,
                  std::vector<Given>& given) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(named.ptr(), &at, &key, &value)) append_one(kernel, kind, key, value, maker, given);
}

void refuse_missing(const Kernel& kernel, const std::vector<Given>& given) {
  std::string missing, first;
  for (const ArrayInfo& info : kernel.arrays()) {
    if (!info.required || info.written) continue;
    bool found = false;
    for (const Given& g : given) found = found || g.info->key == info.key;
    if (found) continue;
    if (first.empty()) first = info.key;
    missing += (missing.empty() ? "'" : ", '") + info.key + "'";
  }
  if (!first.empty()) throw ArgumentFault{"ArgumentError", first, "missing: " + missing};
}

}  // namespace

/// A call in some direction with its values: sizes come from them.
class DirectedRun {
 public:
  DirectedRun(const Kernel& kernel, cellc_direction direction, const RunRequest& request)
      : kernel_(kernel),
        direction_(direction),
        request_(request),
        given_(values(kernel, direction, request)),
        sizes_(kernel, given_, request.sizes),
        arrays_(kernel, sizes_, direction, request.maker, on_host()) {
    made_.reserve(kernel.arrays(direction).size());
    for (Given& g : given_) arrays_.read(g);
  }

  /// Further arrays that are read.
  void read(cellc_quantity quantity, Group group, const nb::dict& named) {
    const std::size_t before = given_.size();
    append_given(kernel_, {direction_, quantity, group}, named, request_.maker, given_);
    for (std::size_t i = before; i < given_.size(); ++i) arrays_.read(given_[i]);
  }
  /// One of a kind, which nobody wrote down by name.
  void read(cellc_quantity quantity, const ArrayInfo& of, nb::handle array) {
    if (array.is_none()) return;
    const ArrayInfo* info = kernel_.find(direction_, quantity, of.group(), of.key);
    if (!info) refuse_unknown(kernel_, direction_, quantity, of.group(), of.key);
    Given one;
    one.info = info;
    one.object = nb::borrow(array);
    if (!hold(one, array)) throw std::logic_error("no tensor");
    given_.push_back(std::move(one));
    arrays_.read(given_.back());
  }
  /// Of the values that were given.
  const Given& value(std::size_t i) const { return given_[i]; }
  std::size_t count() const { return given_.size(); }
  nb::object write(const ArrayInfo& info) {
    made_.push_back({info.number, sizes_.expected(info), {}, info.dtype, -1});
    return arrays_.write(info);
  }
  /// What was written, in order.
  const Recipe::Made& made(std::size_t i) const { return made_[i]; }

  cellc_shape shape() const { return sizes_.shape(); }
  const CallArrays& arrays() const { return arrays_; }
  void* stream() const { return reinterpret_cast<void*>(request_.stream.value_or(0)); }
  /// Of a kernel of a GPU.
  bool on_host() const { return kernel_.on_gpu() && !request_.stream; }

 private:
  static std::vector<Given> values(const Kernel& kernel, cellc_direction direction, const RunRequest& request) {
    std::vector<Given> given;
    given.reserve(kernel.arrays(direction).size());
    const Kind kind{direction, CELLC_IS_VALUE, Group::Read};
    for (std::size_t i = 0; i < request.names.size(); ++i)
      append_one(kernel, kind, request.names[i].ptr(), request.tensors[i].ptr(), request.maker, given);
    append_given(kernel, kind, request.named, request.maker, given);
    refuse_missing(kernel, given);
    return given;
  }

  const Kernel& kernel_;
  const cellc_direction direction_;
  const RunRequest& request_;
  std::vector<Given> given_;
  const CallSizes sizes_;
  CallArrays arrays_;
  std::vector<Recipe::Made> made_;
};

namespace {

/// Results that are no tensors would lose them.
void refuse_gradients(const DirectedRun& run) {
  for (std::size_t i = 0; i < run.count(); ++i) {
    const Given& given = run.value(i);
    const nb::object& tensor = torch_types().tensor;
    if (given.held.is_buffer() || !tensor.is_valid() || PyObject_IsInstance(given.object.ptr(), tensor.ptr()) != 1)
      continue;
    if (nb::object(given.object.attr("requires_grad")).ptr() == Py_True)
      throw ArgumentFault{"DTypeError", given.info->key,
                          given.info->label() +
                              " is a tensor that requires a gradient, which arrays have none of: run "
                              "cellc.torch.function(cell), or give x.detach()"};
  }
}

bool is_wanted(const nb::object& wanted, const std::string& name) {
  return wanted.is_none() || PySequence_Contains(wanted.ptr(), nb::str(name.c_str()).ptr()) == 1;
}

nb::object report_of(const cellc_report& r) {
  return nb::make_tuple(r.converged != 0, r.max_residual, r.error_estimate, r.repaired, r.unconverged, r.iterations,
                        r.compile_ms, r.run_ms);
}

PlacedCall placed(const Kernel& kernel, const DirectedRun& run, cellc_call* prepared) {
  return {kernel, run.shape(), run.arrays().data(), run.arrays().count(), run.stream(), prepared, run.on_host()};
}

/// Null where there is none, or where a default is to be computed that prepared backward calls are given.
std::shared_ptr<cellc_call> prepared_backward(const Kernel& kernel, const DirectedRun& run) {
  for (const ArrayInfo& info : kernel.arrays(CELLC_BACKWARD))
    if (info.quantity == CELLC_IS_VALUE && info.declared && !run.arrays().data()[info.number].data) return nullptr;
  return kernel.prepared(CELLC_BACKWARD, run.shape());
}

/// That tensors are on.
void* stream_of(const Kernel& kernel, const nb::object& maker) {
  if (!kernel.on_gpu()) return nullptr;
  if (torch_types().exchange.exists()) return torch_types().exchange.stream(kernel.gpu());
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(maker.attr("stream")()));
}

bool is_true_at(const nb::tuple& tuple, std::size_t i) {
  return PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i)) == Py_True;
}

/// A call again, with other tensors.
PlacedCall placed(const Kernel& kernel, const Recipe& recipe, const cellc_array* places, void* stream) {
  return {kernel, recipe.shape(), places, static_cast<int>(recipe.arrays.size()), stream, recipe.prepared.get(), false};
}

nb::tuple repeat(const Kernel& kernel, const Recipe& recipe, PyObject* const* tensors, const DLTensor* read,
                 const nb::object& maker, std::size_t before, cellc_report* report) {
  Room<cellc_array> places(recipe.arrays.size());
  recipe.place(read, places.data());
  const nb::tuple results = recipe.make(tensors, maker, before, places.data());
  const PlacedCall call = placed(kernel, recipe, places.data(), stream_of(kernel, maker));
  if (recipe.key.direction == CELLC_BACKWARD)
    call.backward();
  else if (const cellc_status status = call.forward(report); status != CELLC_NOT_CONVERGED)
    check(status);
  return results;
}

/// What calls of that kind have in common. Null where each is its own: with offsets, and with arguments that are no
/// tensors.
std::shared_ptr<const RecipeKey> key_of(const RunRequest& request, const Kernel& kernel,
                                        const std::vector<const ArrayInfo*>& results) {
  const AskedSizes& asked = request.sizes;
  if (!asked.offsets.is_none() || request.named.size() > 0 || kernel.arrays().size() > 64) return nullptr;
  auto key = std::make_shared<RecipeKey>();
  for (const ArrayInfo* info : results)
    if (info->group() == Group::Rows) key->rows |= std::uint64_t{1} << info->number;
  key->names = request.names;
  key->reverse = asked.reverse;
  if (asked.batch) key->lengths.emplace_back("batch", *asked.batch);
  if (asked.length) key->lengths.emplace_back("length", *asked.length);
  if (asked.sizes.is_none()) return key;
  for (const nb::handle item : asked.sizes.attr("items")()) {
    if (!PyUnicode_Check(item[0].ptr()) || !PyLong_Check(item[1].ptr())) return nullptr;  // refused, or of NumPy
    key->lengths.emplace_back(std::string("axis ") + nb::str(item[0]).c_str(), nb::cast<std::int64_t>(item[1]));
  }
  return key;
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t next = 1;
  for (std::size_t i = shape.size(); i-- > 0; next *= std::max<std::int64_t>(shape[i], 1)) strides[i] = next;
  return strides;
}

std::vector<PyObject*> items_of(const nb::tuple& tuple) {
  std::vector<PyObject*> items(tuple.size());
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i));
  return items;
}

/// For calls like this one, which is done, if all of its tensors were read where they are.
void remember(const Kernel& kernel, const DirectedRun& run, const RecipeKey& key, const std::vector<PyObject*>& tensors,
              const std::vector<PyObject*>& results, std::shared_ptr<cellc_call> prepared) {
  if (!torch_types().exchange.exists() || run.count() != tensors.size()) return;
  auto recipe = std::make_shared<Recipe>();
  const cellc_shape shape = run.shape();
  const cellc_array* arrays = run.arrays().data();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Given& given = run.value(i);
    if (given.object.ptr() != tensors[i]) return;
    const View& view = given.held.view;
    recipe->reads.push_back({given.info->number,
                             {view.shape, view.shape + view.rank},
                             {view.strides, view.strides + view.rank},
                             view.dtype,
                             view.device});
  }
  for (PyObject* result : results) {
    recipe->results.push_back(result == Py_None ? -1 : static_cast<int>(recipe->made.size()));
    if (result != Py_None) recipe->made.push_back(run.made(recipe->made.size()));
  }
  for (Recipe::Made& made : recipe->made) made.strides = dense_strides(made.shape);
  for (Recipe::Made& made : recipe->made)
    for (std::size_t i = 0; i < recipe->reads.size() && made.like < 0; ++i) {
      const Recipe::Read& read = recipe->reads[i];
      if (read.dtype == made.dtype && read.shape == made.shape && read.is_dense()) made.like = static_cast<int>(i);
    }
  recipe->key = key;
  recipe->arrays.assign(arrays, arrays + run.arrays().count());
  recipe->lengths.assign(shape.lengths, shape.lengths + kernel.axes().size());
  recipe->sequences = shape.sequences;
  recipe->steps = shape.steps;
  recipe->device = kernel.on_gpu() ? kernel.gpu() : kHost;
  recipe->prepared = std::move(prepared);
  kernel.recipes().keep(std::move(recipe));
}

}  // namespace

nb::tuple forward(const Kernel& kernel, const RunRequest& request, nb::object wanted, bool finals, bool report) {
  DirectedRun run(kernel, CELLC_FORWARD, request);
  refuse_gradients(run);
  nb::list rows, last;
  for (const ArrayInfo& info : kernel.arrays()) {
    if (info.group() == Group::Rows && is_wanted(wanted, info.key)) rows.append(run.write(info));
    if (info.group() == Group::Finals && finals) last.append(run.write(info));
  }
  cellc_report filled;
  cellc_report_init(&filled);
  const auto prepared = kernel.prepared(CELLC_FORWARD, run.shape());
  const cellc_status status = placed(kernel, run, prepared.get()).forward(report ? &filled : nullptr);
  if (status != CELLC_NOT_CONVERGED) check(status);  // that is said by the report
  return nb::make_tuple(nb::tuple(rows), nb::tuple(last), report ? report_of(filled) : nb::object(nb::none()));
}

nb::tuple backward(const Kernel& kernel, const RunRequest& request, nb::dict states, const Derivatives& cotangents,
                   nb::object wanted) {
  DirectedRun run(kernel, CELLC_BACKWARD, request);
  run.read(CELLC_IS_VALUE, Group::Rows, states);
  run.read(CELLC_IS_COTANGENT, Group::Rows, cotangents.rows);
  run.read(CELLC_IS_COTANGENT, Group::Finals, cotangents.finals);
  nb::list gradients;
  for (const nb::handle key : wanted) {
    const char* name = PyUnicode_AsUTF8AndSize(key.ptr(), nullptr);
    if (!name) throw nb::python_error();
    const ArrayInfo* info = kernel.find(CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, name);
    if (!info) refuse_unknown(kernel, CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, name);
    gradients.append(run.write(*info));
  }
  placed(kernel, run, prepared_backward(kernel, run).get()).backward();
  return nb::tuple(gradients);
}

nb::tuple tangent(const Kernel& kernel, const RunRequest& request, nb::dict states, nb::dict tangents, bool finals) {
  DirectedRun run(kernel, CELLC_TANGENT, request);
  run.read(CELLC_IS_VALUE, Group::Rows, states);
  run.read(CELLC_IS_TANGENT, Group::Read, tangents);
  nb::list rows, last;
  for (const ArrayInfo& info : kernel.arrays()) {  // in the order of the results that they are tangents of
    if (!info.written || (info.group() == Group::Finals && !finals)) continue;
    const ArrayInfo* moves = kernel.find(CELLC_TANGENT, CELLC_IS_TANGENT, info.group(), info.key);
    (info.group() == Group::Rows ? rows : last).append(moves ? run.write(*moves) : nb::object(nb::none()));
  }
  placed(kernel, run, nullptr).tangent();
  return nb::make_tuple(nb::tuple(rows), nb::tuple(last));
}

TensorCall::TensorCall(nb::object owner, RunRequest request, nb::object rows, bool finals)
    : owner_(std::move(owner)),
      kernel_(*nb::inst_ptr<Kernel>(owner_)),
      request_(std::move(request)),
      finals_(finals),
      results_(results_of(rows)),
      key_(key_of(request_, kernel_, results_)) {}

std::vector<const ArrayInfo*> TensorCall::results_of(const nb::object& rows) const {
  std::vector<const ArrayInfo*> results;
  for (const Group group : {Group::Rows, Group::Finals})
    for (const ArrayInfo& info : kernel_.arrays())
      if (info.group() == group && (group == Group::Rows ? is_wanted(rows, info.key) : finals_))
        results.push_back(&info);
  return results;
}

void TensorCall::read_results(const RunRequest& request, const nb::tuple& cotangents, DirectedRun& run) const {
  std::size_t state = request.names.size();
  for (const ArrayInfo& info : kernel_.arrays())
    if (info.role == CELLC_ROLE_STATE) run.read(CELLC_IS_VALUE, info, request.tensors[state++]);
  for (std::size_t i = 0; i < std::min(cotangents.size(), results_.size()); ++i)
    run.read(CELLC_IS_COTANGENT, *results_[i], cotangents[i]);
}

RunRequest TensorCall::request(const nb::tuple& tensors) const {
  RunRequest request = request_;
  request.tensors = tensors;
  request.stream = reinterpret_cast<std::uintptr_t>(stream_of(kernel_, request.maker));
  return request;
}

nb::object TensorCall::repeat_forward(PyObject* const* tensors, std::size_t count, cellc_report* report) const {
  if (!key_) return {};
  RecipeKey key = *key_;
  key.wanted = finals_;
  Room<DLTensor> read(count);
  const auto recipe = kernel_.recipes().find(key, tensors, count, read.data());
  if (!recipe) return {};
  return repeat(kernel_, *recipe, tensors, read.data(), request_.maker, 0, report);
}

nb::tuple TensorCall::forward(const nb::tuple& given) const { return forward(given, nullptr); }

nb::tuple TensorCall::watched(const nb::tuple& given) const {
  cellc_report report;
  cellc_report_init(&report);
  const nb::tuple results = forward(given, &report);
  return nb::make_tuple(results, report_of(report));
}

nb::tuple TensorCall::forward(const nb::tuple& given, cellc_report* report) const {
  const std::vector<PyObject*> tensors = items_of(given);
  if (const nb::object again = repeat_forward(tensors.data(), tensors.size(), report); again.is_valid())
    return nb::borrow<nb::tuple>(again);
  const RunRequest request = this->request(given);
  DirectedRun run(kernel_, CELLC_FORWARD, request);
  nb::list list;
  for (const ArrayInfo* info : results_) list.append(run.write(*info));
  const nb::tuple results(list);
  const auto prepared = kernel_.prepared(CELLC_FORWARD, run.shape());
  const cellc_status status = placed(kernel_, run, prepared.get()).forward(report);
  if (status != CELLC_NOT_CONVERGED) check(status);
  if (key_) {
    RecipeKey key = *key_;
    key.wanted = finals_;
    remember(kernel_, run, key, tensors, items_of(results), prepared);
  }
  return results;
}

std::optional<RecipeKey> TensorCall::backward_key(PyObject* const* cotangents, std::size_t count,
                                                  const nb::tuple& needed) const {
  const std::size_t names = request_.names.size(), before = needed.size() - names;
  if (!key_ || names > 64 || count > 64) return std::nullopt;
  RecipeKey key = *key_;
  key.direction = CELLC_BACKWARD;
  for (std::size_t i = 0; i < names; ++i) key.wanted |= std::uint64_t{is_true_at(needed, before + i)} << i;
  for (std::size_t i = 0; i < count; ++i) key.cotangents |= std::uint64_t{cotangents[i] != Py_None} << i;
  return key;
}

nb::object TensorCall::repeat_backward(const nb::tuple& given, PyObject* const* cotangents, std::size_t count,
                                       const nb::tuple& needed) const {
  const std::optional<RecipeKey> key = backward_key(cotangents, count, needed);
  if (!key) return {};
  std::size_t tensors = given.size();
  Room<PyObject*> all(tensors + count);
  for (std::size_t i = 0; i < tensors; ++i) all[i] = PyTuple_GetItem(given.ptr(), static_cast<Py_ssize_t>(i));
  for (std::size_t i = 0; i < count; ++i)
    if (cotangents[i] != Py_None) all[tensors++] = cotangents[i];
  Room<DLTensor> read(tensors);
  const auto recipe = kernel_.recipes().find(*key, all.data(), tensors, read.data());
  if (!recipe) return {};
  const std::size_t before = needed.size() - request_.names.size();
  return repeat(kernel_, *recipe, all.data(), read.data(), request_.maker, before, nullptr);
}

nb::tuple TensorCall::backward(const nb::tuple& given, const nb::tuple& cotangents, const nb::tuple& needed) const {
  const std::vector<PyObject*> pulled = items_of(cotangents);
  if (const nb::object again = repeat_backward(given, pulled.data(), pulled.size(), needed); again.is_valid())
    return nb::borrow<nb::tuple>(again);
  const RunRequest request = this->request(given);
  DirectedRun run(kernel_, CELLC_BACKWARD, request);
  read_results(request, cotangents, run);
  const std::size_t before = needed.size() - request.names.size();
  nb::list list;
  bool fit = true;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (!is_true_at(needed, i)) {
      list.append(nb::none());
      continue;
    }
    const Given& value = run.value(i - before);
    const ArrayInfo* info = kernel_.find(CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, value.info->key);
    if (!info) refuse_unknown(kernel_, CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, value.info->key);
    fit = fit && !value.refitted && info->dtype == value.info->dtype;
    list.append(run.write(*info));
  }
  const auto prepared = prepared_backward(kernel_, run);
  placed(kernel_, run, prepared.get()).backward();
  if (const auto key = backward_key(pulled.data(), pulled.size(), needed); key && fit) {
    std::vector<PyObject*> tensors = items_of(given), results = items_of(nb::tuple(list));
    std::copy_if(pulled.begin(), pulled.end(), std::back_inserter(tensors), [](PyObject* p) { return p != Py_None; });
    results.erase(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(before));
    remember(kernel_, run, *key, tensors, results, prepared);
  }
  if (!fit)
    for (std::size_t i = before; i < needed.size(); ++i)
      if (!list[i].is_none()) list[i] = request.maker.attr("fit")(list[i], request.tensors[i - before]);
  return nb::tuple(list);
}

Repeated TensorCall::repeat_operator(const OperatorCall& asked, const OperatorResults& results) const {
  if (!key_) return Repeated::Unknown;
  RecipeKey key = *key_;
  key.direction = asked.backward ? CELLC_BACKWARD : CELLC_FORWARD;
  key.wanted = asked.backward ? asked.wanted : std::uint64_t{finals_};
  key.cotangents = asked.cotangents;
  const auto recipe = kernel_.recipes().find(key, asked.tensors, static_cast<std::size_t>(asked.count));
  if (!recipe) return Repeated::Unknown;
  Room<cellc_array> places(recipe->arrays.size());
  recipe->place(asked.tensors, places.data());
  const PlacedCall call = placed(kernel_, *recipe, places.data(), stream_of(kernel_, request_.maker));
  const nb::gil_scoped_release others_run;
  for (const Recipe::Made& made : recipe->made) {
    void*& data = places[static_cast<std::size_t>(made.number)].data;
    const int rank = static_cast<int>(made.shape.size());
    if (results.make(results.context, made.shape.data(), rank, made.dtype, &data) != 0) return Repeated::Failed;
  }
  const cellc_status status = asked.backward ? call.run_backward() : call.run_forward(nullptr);
  const bool done = status == CELLC_OK || (status == CELLC_NOT_CONVERGED && !asked.backward);
  return done ? Repeated::Done : Repeated::Failed;
}

nb::tuple TensorCall::curvature(const nb::tuple& given, const nb::tuple& cotangents, const nb::tuple& moved) const {
  const RunRequest request = this->request(given);
  DirectedRun backward(kernel_, CELLC_BACKWARD, request), tangent(kernel_, CELLC_TANGENT, request);
  read_results(request, cotangents, backward);
  std::size_t state = request.names.size();
  for (const ArrayInfo& info : kernel_.arrays())
    if (info.role == CELLC_ROLE_STATE) tangent.read(CELLC_IS_VALUE, info, request.tensors[state++]);
  nb::list gradients, tangents;
  for (std::size_t i = 0; i < request.names.size(); ++i) {
    const ArrayInfo& value = *backward.value(i).info;
    tangent.read(CELLC_IS_TANGENT, value, moved[i]);
    gradients.append(backward.write(*kernel_.find(CELLC_BACKWARD, CELLC_IS_GRADIENT, Group::Read, value.key)));
  }
  for (const ArrayInfo* info : results_) {
    const ArrayInfo* moves = kernel_.find(CELLC_TANGENT, CELLC_IS_TANGENT, info->group(), info->key);
    tangents.append(moves ? tangent.write(*moves) : nb::object(nb::none()));
  }
  const cellc_shape shape = backward.shape();
  const CallArrays &pulled = backward.arrays(), &pushed = tangent.arrays();
  cellc_status status;
  if (kernel_.on_gpu()) request.maker.attr("settle")();  // of copies that were queued just now, too
  {
    nb::gil_scoped_release others_run;
    status = cellc_curvature(kernel_.handle(), &shape, pulled.data(), pulled.count(), pushed.data(), pushed.count(),
                             nullptr);
  }
  check(status);
  return nb::make_tuple(nb::tuple(gradients), nb::tuple(tangents));
}

}  // namespace cellc::python
