// Runs before the first paint, so that the page does not flash in the other theme.
(function () {
  try {
    const chosen = localStorage.getItem("hyperslab-theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be disabled: the system's preference then applies.
  }
})();
