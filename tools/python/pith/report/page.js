// Numbers under the pointer. Everything else of the page works without scripts.
for (const figure of document.querySelectorAll('figure.chart')) {
  const data = JSON.parse(figure.querySelector('script').textContent);
  const svg = figure.querySelector('svg');
  const cross = figure.querySelector('.cross');
  const tip = figure.querySelector('.tip');

  const nearest = (at) => {
    let best = 0;
    data.x.forEach((x, i) => { if (Math.abs(x - at) < Math.abs(data.x[best] - at)) best = i; });
    return best;
  };
  const row = (name, text) => {
    const line = document.createElement('div');
    for (const word of [name, text]) {
      line.append(Object.assign(document.createElement('span'), {textContent: word}));
    }
    return line;
  };
  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const i = nearest((event.clientX - box.left) * svg.viewBox.baseVal.width / box.width);
    cross.setAttribute('x1', data.x[i]);
    cross.setAttribute('x2', data.x[i]);
    cross.style.visibility = 'visible';
    const rows = data.series.filter((one) => one.labels[i])
      .map((one) => row(one.name, one.labels[i]));
    tip.replaceChildren(row(data.name, data.labels[i]), ...rows);
    tip.hidden = false;
    const at = box.left - figure.getBoundingClientRect().left
      + data.x[i] * box.width / svg.viewBox.baseVal.width;
    const isRight = at > figure.clientWidth / 2;
    tip.style.left = isRight ? '' : `${at + 12}px`;
    tip.style.right = isRight ? `${figure.clientWidth - at + 12}px` : '';
    tip.style.top = `${svg.offsetTop + 12}px`;
  };
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerleave', () => {
    tip.hidden = true;
    cross.style.visibility = 'hidden';
  });
  figure.dataset.ready = 'yes';
}
